#include "motley/control/pricing.h"

#include <filesystem>

#include "motley/control/measuring.h"
#include "motley/search/price/cost_table.h"

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

}  // namespace

Result<cost::ProfileStore> open_store(const std::string& path) {
  std::error_code code;
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty())
    std::filesystem::create_directories(parent, code);
  return cost::ProfileStore::open(path);
}

Result<Priced> price(const Inputs& inputs, const PriceChoices& choices, const Outside& outside) {
  MOTLEY_ASSIGN(std::string torch, outside.workers.torch_version());
  torch = engine_version(inputs, torch);
  MOTLEY_ASSIGN(cost::ProfileStore store, open_store(choices.profiles));
  auto priced = load_priced(inputs, choices.missing, store, torch);
  const bool is_missing = !priced && priced.error().code.ends_with(".missing-profile");
  if (is_missing && choices.missing == Missing::kMeasure) {
    MOTLEY_RETURN_IF_ERROR(measure(inputs, choices.rounds, store, outside));
    priced = load_priced(inputs, choices.missing, store, torch);
  }
  if (!priced) return priced;
  outside.listener.phase(Phase::kPrice, [&] {
    return search::print_cost_table(search::build_cost_table(*priced->costs, inputs.cluster));
  });
  return priced;
}

}  // namespace motley::control
