#pragma once

#include "motley/plan/planner.h"
#include "motley/search/restricted/stage_spaces.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// An outcome with the equal split's baselines, and what it lacks, without a plan.
Result<plan::PlanOutcome> find_baselines(const PlannerInputs& inputs, const plan::Problem& problem);

/// What another planner would find for a model of one's own: the best plan of a restricted space
/// (restricted/stage_spaces.h) over its costs, priced by its program as any other. With one device,
/// or without times of operators: the equal split, which each of the spaces then is.
class RestrictedPlanner : public plan::Planner {
 public:
  RestrictedPlanner(StageSpace space, const PlannerInputs& inputs)
      : space_(space), inputs_(inputs) {}
  std::string_view name() const override { return stage_space_name(space_).planner; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  StageSpace space_;
  PlannerInputs inputs_;
};

}  // namespace motley::search
