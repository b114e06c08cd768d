#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {

/// The planner "auto": asks the planners that search, and takes the best plan that any of them
/// priced: the best split of the batch, or a sharding that takes less (which `spmd` compares with
/// HAP's), or replicas cut into stages (stage_planner.h; of more than 64 devices only where nothing
/// else fits), or one of the problem's known plans. Its bound holds for all that was searched.
class Portfolio : public plan::Planner {
 public:
  /// What the inputs point to must outlive it.
  explicit Portfolio(const PlannerInputs& inputs) : inputs_(inputs) {}
  std::string_view name() const override { return "auto"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  Result<void> consider_sharding(const plan::Problem& problem, SpmdStart start,
                                 std::optional<Seconds> least_staged,
                                 plan::PlanOutcome& outcome) const;
  PlannerInputs inputs_;
};

/// How plans differ most: prices of one family are wrong in the same way.
enum class Family { kSplit, kAlone, kSharding, kStages };
Family family_of(const plan::Plan& plan);

/// Puts the best of the problem's known plans in the place of the outcome's where it takes less, as
/// things are priced now, and fits. Where a search likes what nobody measured, and measuring it
/// shows that it was too good to be true, the better plan of an earlier round is not lost.
Result<void> reconsider_known(const PlannerInputs& inputs, const plan::Problem& problem,
                              plan::PlanOutcome& outcome);

}  // namespace motley::search
