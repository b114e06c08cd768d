#pragma once

#include <span>

#include "motley/plan/planner.h"
#include "motley/search/planners.h"
#include "motley/search/split/planner_inputs.h"
#include "peers/spaces/stage_spaces.h"

namespace motley::peers {

/// Plans as another planner would: the best plan of a restricted space (stage_spaces.h) at one's
/// own costs. With one device, or without operator times, that is the equal split.
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

/// Lists ours (search/planners.h), and one for each space, named as in kStageSpaces.
std::span<const search::NamedPlanner> planners();

}  // namespace motley::peers
