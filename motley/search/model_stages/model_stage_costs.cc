#include "motley/search/model_stages/model_stage_costs.h"

#include <utility>

#include "motley/search/model_stages/least_step.h"

namespace motley::search {

ModelStageCosts::ModelStageCosts(ClusterPools pools, const PlannerInputs& inputs,
                                 const plan::Problem& problem, UnitKinds kinds)
    : graph_(*inputs.graph, problem),
      units_(std::move(pools), problem, graph_),
      programs_(inputs, graph_, units_),
      times_(programs_, pieces_),
      memory_(programs_, pieces_),
      sends_(programs_),
      regions_(programs_, pieces_) {
  units_.find(inputs, kinds);
  pieces_ = find_model_pieces(programs_);
}

Result<std::unique_ptr<ModelStageCosts>> ModelStageCosts::make(const PlannerInputs& inputs,
                                                               const plan::Problem& problem,
                                                               UnitKinds kinds) {
  MOTLEY_ASSIGN(ClusterPools pools,
                find_pools(*problem.cluster, problem.devices, UnknownMemory::kUnlimited));
  std::unique_ptr<ModelStageCosts> made(
      new ModelStageCosts(std::move(pools), inputs, problem, kinds));
  if (!made->has_times())
    return usage_error("search.stages", "no device has times of the model's layers");
  made->least_step_ = find_least_step(made->units_, made->times_);
  return made;
}

bool ModelStageCosts::has_times() const {
  if (micro_batches().empty()) return false;
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (times_.knows(unit, micro_batches().front())) return true;
  return false;
}

bool ModelStageCosts::offer_mixed() {
  if (!units_.offer_mixed()) return false;
  units_.restore_memory();
  assumed_ = {};
  return true;
}

}  // namespace motley::search
