#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "motley/plan/planner.h"
#include "motley/search/model_stages/finer_layers.h"
#include "motley/search/model_stages/stage_passes.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/stages/costs/mixed_units.h"
#include "motley/search/stages/stage_search.h"

namespace motley::search {

struct StageFinder {
  StageCuts cuts = StageCuts::kRefined;
  UnitKinds kinds = UnitKinds::kIdenticalFirst;  ///< what the devices of a stage may be
  /// The question's costs are of layers or of pieces, as it says.
  std::function<Result<StageOutcome>(const StageQuestion&, const FinerLayers&)> find =
      [](const StageQuestion& question, const FinerLayers&) { return find_stage_plan(question); };
  /// The pass that is left out, by its name; only bench/model_passes.cc says one.
  std::string_view without = {};
};

/// Puts a plan of stages in the place of the outcome's where it takes less and fits: replicas cut
/// into stages of consecutive layers, each on one device or on several of a host, with
/// micro-batches of their own (stages/stage_search.h over model_stage_costs.h). The passes of
/// stage_passes.h search and change plans; these, runner-ups too, are priced by their programs.
/// Where one lacks memory, it searches again with as much less. The outcome's bound becomes one of
/// these plans, too, however devices share a stage. Returns what no plan of stages undercuts; none:
/// nothing happened, as there are no times of operators, or one device for which there is a plan.
/// `find` may be the search of a narrower space, of stages of devices of one kind each, too.
Result<std::optional<Seconds>> consider_stages(const PlannerInputs& inputs,
                                               const plan::Problem& problem,
                                               plan::PlanOutcome& outcome,
                                               const StageFinder& find = {});

/// Planner `stages`: the best of splits of the batch and of plans of stages.
class StagePlanner : public plan::Planner {
 public:
  explicit StagePlanner(const PlannerInputs& inputs) : inputs_(inputs) {}
  std::string_view name() const override { return "stages"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  PlannerInputs inputs_;
};

}  // namespace motley::search
