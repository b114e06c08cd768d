#pragma once

#include <span>

#include "motley/plan/planner.h"
#include "motley/search/planners.h"
#include "motley/search/split/planner_inputs.h"
#include "peers/spaces/stage_spaces.h"

namespace motley::peers {

/// What another planner would find for a model of one's own: the best plan of a restricted space
/// (restricted/stage_spaces.h) over its costs, priced by its program as any other. With one device,
/// or without times of operators: the equal split, which each of the spaces then is.
class RestrictedPlanner : public plan::Planner {
 public:
  RestrictedPlanner(StageSpace space, const search::PlannerInputs& inputs)
      : space_(space), inputs_(inputs) {}
  std::string_view name() const override { return stage_space_name(space_).planner; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  StageSpace space_;
  search::PlannerInputs inputs_;
};

/// Ours (search/planners.h), and one for each space, by the names of kStageSpaces.
std::span<const search::NamedPlanner> planners();

}  // namespace motley::peers
