#include "motley/control/planning/pricing.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "motley/cluster/kinds.h"
#include "motley/control/planning/measuring.h"
#include "motley/cost/device_keys.h"
#include "motley/cost/measured/find_framework.h"
#include "motley/cost/trust/experience.h"
#include "motley/search/layers/layer_tables.h"
#include "motley/search/price/cost_table.h"

namespace motley::control {
namespace {

Result<Priced> priced_by(const Inputs& inputs, search::Costs costs) {
  Priced priced;
  priced.costs = std::make_shared<const search::Costs>(std::move(costs));
  MOTLEY_ASSIGN(priced.evaluator, search::StepEvaluator::make(inputs.graph(), inputs.cluster,
                                                              inputs.lowering, *priced.costs));
  return priced;
}

/// Returns costs that price every group, or the error that names what is missing.
Result<Priced> load_priced(const Inputs& inputs, Missing missing, const cost::ProfileStore& store,
                           const std::string& torch) {
  MOTLEY_ASSIGN(search::Costs costs, search::load_costs(*inputs.model, inputs.cluster, store,
                                                        {.lowering = inputs.lowering,
                                                         .torch = torch,
                                                         .global_batch = inputs.global_batch,
                                                         .devices = inputs.devices,
                                                         .may_model = missing == Missing::kModel,
                                                         .programs = inputs.programs}));
  return priced_by(inputs, std::move(costs));
}

/// Prices from the store, after measuring what is missing, if allowed.
Result<Priced> price_model(Inputs& inputs, const PriceChoices& choices, const Outside& outside) {
  // Without a worker nothing was measured, but some models need no measurements.
  const std::string version = outside.workers.torch_version().value_or("");
  const std::string torch = engine_version(inputs, version);
  MOTLEY_ASSIGN(cost::ProfileStore store, open_store(choices.profiles));
  MOTLEY_RETURN_IF_ERROR(learn_framework(store, version, inputs));
  auto priced = load_priced(inputs, choices.missing, store, torch);
  const bool is_missing = !priced && priced.error().code.ends_with(".missing-profile");
  if (!is_missing || choices.missing != Missing::kMeasure) return priced;
  MOTLEY_RETURN_IF_ERROR(measure(inputs, choices.rounds, store, outside));
  MOTLEY_RETURN_IF_ERROR(learn_framework(store, version, inputs));
  return load_priced(inputs, choices.missing, store, torch);
}

/// Prices from the times in the layer profile.
Result<Priced> price_layers(const Inputs& inputs) {
  MOTLEY_ASSIGN(search::Costs costs, search::load_layer_costs(*inputs.layers, inputs.cluster,
                                                              {.lowering = inputs.lowering,
                                                               .devices = inputs.devices,
                                                               .programs = inputs.programs}));
  return priced_by(inputs, std::move(costs));
}

}  // namespace

Result<cost::ProfileStore> open_store(const std::string& path) {
  std::error_code code;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty())
    std::filesystem::create_directories(parent, code);
  return cost::ProfileStore::open(path);
}

Result<void> learn_framework(const cost::ProfileStore& store, const std::string& torch,
                             Inputs& inputs) {
  for (const DeviceId id : inputs.devices) {
    cluster::Device& device = inputs.cluster.devices[id.index()];
    if (device.kind != "cuda") continue;
    // Memory does not depend on TF32, but keys of times do.
    for (const std::string& engine : {torch, torch + cost::kTf32Suffix}) {
      MOTLEY_ASSIGN(const auto found,
                    cost::find_framework(store, cost::device_key(device, engine)));
      if (found) device.framework = found;
    }
  }
  return {};
}

Result<void> learn_framework(const PriceChoices& choices, const Outside& outside, Inputs& inputs) {
  const bool has_gpu = std::any_of(inputs.devices.begin(), inputs.devices.end(), [&](DeviceId id) {
    return inputs.cluster.device(id).kind == "cuda";
  });
  if (!has_gpu || !std::filesystem::exists(choices.profiles)) return {};
  const auto torch = outside.workers.torch_version();
  if (!torch) return {};
  MOTLEY_ASSIGN(const cost::ProfileStore store, open_store(choices.profiles));
  return learn_framework(store, *torch, inputs);
}

void leave_spare(const search::Costs& costs, Inputs& inputs) {
  for (const DeviceId id : inputs.devices) {
    cluster::Device& device = inputs.cluster.devices[id.index()];
    device.spare = Bytes(0);
    const cost::Origin origin = costs.grounds.at(device.name).origin;
    if (!device.memory || origin < cost::Origin::kCarried) continue;
    const auto kind = cluster::find_kind(device.kind);
    const bool is_printed = kind && kind->memory == device.memory;
    const double all = static_cast<double>(device.memory->value),
                 free = is_printed ? cluster::kFreeOfPrinted * all : all;
    // Tensors, and what the allocator keeps of them, may be this much larger; the context may not.
    const double most =
        cost::find_experience(costs.earlier, {.quantity = "memory"}, origin).around(1).high;
    const auto context = static_cast<double>(cost::framework_bytes(device, Bytes(0)).value);
    const double room = std::min(free, context + (free - context) / most);
    device.spare = Bytes(std::llround(all - room));
  }
}

Result<Priced> price(Inputs& inputs, const PriceChoices& choices, const Outside& outside) {
  MOTLEY_ASSIGN(const Priced priced,
                inputs.layers ? price_layers(inputs) : price_model(inputs, choices, outside));
  leave_spare(*priced.costs, inputs);
  MOTLEY_RETURN_IF_ERROR(outside.listener.phase(Phase::kPrice, [&] {
    return search::print_cost_table(search::build_cost_table(*priced.costs, inputs.cluster));
  }));
  return priced;
}

}  // namespace motley::control
