#pragma once

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

/// The planner "auto": asks the planners that search, and takes the best plan that any of them
/// priced: the best split of the batch, or a sharding that takes less (which `spmd` compares with
/// HAP's). Its bound holds for all shardings and splits where those could be searched.
class Portfolio : public plan::Planner {
 public:
  /// What the inputs point to must outlive it.
  explicit Portfolio(const PlannerInputs& inputs) : inputs_(inputs) {}
  std::string_view name() const override { return "auto"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  PlannerInputs inputs_;
};

}  // namespace motley::search
