#pragma once

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// Planner `given`: turns stages given by the user (Problem::stages) into a plan of this model on
/// these devices, priced by its program. The planner chooses how devices share a stage, the order
/// of passes and what is kept. It considers the fastest way of stage_ways.h for each stage, and the
/// smallest. Usage errors (search.stages) name the stage: layers or devices that do not exist, are
/// not adjacent, or are left out.
class GivenPlanner : public plan::Planner {
 public:
  explicit GivenPlanner(const PlannerInputs& inputs) : inputs_(inputs) {}
  std::string_view name() const override { return "given"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  PlannerInputs inputs_;
};

}  // namespace motley::search
