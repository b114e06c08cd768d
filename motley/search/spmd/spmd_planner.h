#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "motley/base/deadline.h"
#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/spmd/study.h"

namespace motley::search {

/// How shardings of operators are found: by the search of spmd_search.h, or by HAP's algorithm on
/// the same graph, rules and costs (hap_search.h).
enum class SpmdMethod { kSpmd, kHap };

/// Planners of operator-level sharding, "spmd" and "hap" (planners.h).
class SpmdPlanner : public plan::Planner {
 public:
  /// What the inputs point to must outlive it.
  SpmdPlanner(SpmdMethod method, const PlannerInputs& inputs) : method_(method), inputs_(inputs) {}
  std::string_view name() const override { return method_ == SpmdMethod::kSpmd ? "spmd" : "hap"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  SpmdMethod method_;
  PlannerInputs inputs_;
};

/// The batch at once, on all of the problem's devices, without a deadline.
SpmdQuestion spmd_question(const PlannerInputs& inputs, const plan::Problem& problem);

/// Is there more to choose from than splits of the batch? Not without costs of operators, on one
/// device, or with batch norm over local samples.
bool may_shard(const plan::Problem& problem, const PlannerInputs& inputs);

/// What a search over shardings starts from.
struct SpmdStart {
  const plan::PlanOutcome* split = nullptr;  ///< the best split of the batch
  Deadline deadline;
  std::int64_t micro_batches = 0;  ///< that somebody asked for; 0: as few as are best
  /// Of another plan: what takes longer is of no use, nor is a bound above that of other plans.
  Seconds known_step{std::numeric_limits<double>::infinity()};
  Seconds enough_bound{std::numeric_limits<double>::infinity()};
};

/// What it found. The outcome's baselines are those of splits; its bound holds for all shardings
/// and splits, and is there also where no sharding fits. 0: none is known (hap).
struct SpmdOutcome {
  plan::PlanOutcome outcome;
  bool was_ended = false;  ///< by the deadline
};
Result<SpmdOutcome> plan_sharding(SpmdMethod method, const PlannerInputs& inputs,
                                  const plan::Problem& problem, const SpmdStart& start);

/// Claims a bound for the outcome's plan (claim_bound), and says what that means for the plan.
Result<void> set_bound(Seconds bound, bool was_ended, plan::PlanOutcome& outcome);

/// Puts a plan, priced, in the place of the outcome's if it fits and takes less, or the outcome has
/// none; its bound is set anew. Returns whether it was.
Result<bool> take_better(const plan::Problem& problem, const plan::Plan& plan,
                         const plan::Price& price, std::vector<std::string> why,
                         plan::PlanOutcome& outcome);

}  // namespace motley::search
