#include "motley/control/pricing.h"

#include <fmt/format.h>

#include <filesystem>

#include "motley/base/text.h"
#include "motley/control/measuring.h"

namespace motley::control {
namespace {

/// Costs that price every group, or the error that says what is missing.
Result<Priced> load_priced(const Inputs& inputs, Missing missing, const cost::ProfileStore& store,
                           const std::string& torch) {
  MOTLEY_ASSIGN(search::Costs costs, search::load_costs(*inputs.model, inputs.cluster, store,
                                                        {.lowering = inputs.lowering,
                                                         .torch = torch,
                                                         .global_batch = inputs.global_batch,
                                                         .devices = inputs.devices,
                                                         .may_model = missing == Missing::kModel}));
  Priced priced;
  priced.costs = std::make_shared<const search::Costs>(std::move(costs));
  MOTLEY_ASSIGN(priced.evaluator, search::StepEvaluator::make(inputs.graph(), inputs.cluster,
                                                              inputs.lowering, *priced.costs));
  return priced;
}

std::string print_costs(const search::Costs& costs, const cluster::Cluster& cluster) {
  std::string text = "motley.costs/1\n";
  for (const auto& [name, times] : costs.devices) {
    if (!times.alone) continue;
    const cluster::Device& device = cluster.device(*cluster::find_device(cluster, name));
    text += fmt::format("device \"{}\" speed {} kind \"{}\"\n", name, device.speed, device.kind);
    for (const double batch : times.alone->batches()) {
      double alone = 0, shared = 0;
      for (std::size_t i = 0; i < times.alone->size(); ++i)
        alone += times.alone->at(i, batch).value;
      for (std::size_t i = 0; times.shared && i < times.shared->size(); ++i)
        shared += times.shared->at(i, batch).value;
      text += fmt::format("  batch {}: {} s alone, {} s of compute in a group\n", batch,
                          print_float(alone / times.speed), print_float(shared / times.speed));
    }
  }
  return text;
}

}  // namespace

Result<cost::ProfileStore> open_store(const std::string& path) {
  std::error_code code;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty())
    std::filesystem::create_directories(parent, code);
  return cost::ProfileStore::open(path);
}

Result<Priced> price(const Inputs& inputs, const PriceChoices& choices, const Outside& outside) {
  MOTLEY_ASSIGN(const std::string torch, outside.workers.torch_version());
  MOTLEY_ASSIGN(cost::ProfileStore store, open_store(choices.profiles));
  auto priced = load_priced(inputs, choices.missing, store, torch);
  const bool is_missing = !priced && priced.error().code.ends_with(".missing-profile");
  if (is_missing && choices.missing == Missing::kMeasure) {
    MOTLEY_RETURN_IF_ERROR(measure(inputs, store, outside));
    priced = load_priced(inputs, choices.missing, store, torch);
  }
  if (!priced) return priced;
  outside.listener.phase(Phase::kPrice,
                         [&] { return print_costs(*priced->costs, inputs.cluster); });
  return priced;
}

}  // namespace motley::control
