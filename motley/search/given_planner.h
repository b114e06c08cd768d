#pragma once

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// Planner `given`: stages that somebody else made (Problem::stages) as a plan of this model on
/// these devices, priced by its program as any other. How several devices share a stage, the order
/// of passes and what is kept are Motley's: of the ways of stage_ways.h the fastest for each
/// stage, or what holds least. Usage errors (search.stages) with the stage: layers and devices that
/// there are not, that are not next to each other or that are left out.
class GivenPlanner : public plan::Planner {
 public:
  explicit GivenPlanner(const PlannerInputs& inputs) : inputs_(inputs) {}
  std::string_view name() const override { return "given"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  PlannerInputs inputs_;
};

}  // namespace motley::search
