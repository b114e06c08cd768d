#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "motley/base/deadline.h"
#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/spmd/study.h"

namespace motley::search {

/// The search method for shardings of operators: spmd_search.h, or HAP's algorithm on the same
/// graph, rules and costs (hap_search.h).
enum class SpmdMethod { kSpmd, kHap };

/// Planners "spmd" and "hap" of operator-level sharding (planners.h).
class SpmdPlanner : public plan::Planner {
 public:
  /// All that the inputs point to must outlive it.
  SpmdPlanner(SpmdMethod method, const PlannerInputs& inputs) : method_(method), inputs_(inputs) {}
  std::string_view name() const override { return method_ == SpmdMethod::kSpmd ? "spmd" : "hap"; }
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  SpmdMethod method_;
  PlannerInputs inputs_;
};

/// Returns the question of the whole batch on all of the problem's devices, without a deadline.
SpmdQuestion spmd_question(const PlannerInputs& inputs, const plan::Problem& problem);

/// Can operators be split other than by the batch? Not without operator costs, on one device, or
/// with batch norm over local samples.
bool may_shard(const plan::Problem& problem, const PlannerInputs& inputs);

/// The start of a search over shardings.
struct SpmdStart {
  const plan::PlanOutcome* split = nullptr;  ///< the best split of the batch
  Deadline deadline;
  std::int64_t micro_batches = 0;  ///< requested number; 0: the best one
  /// From another plan: slower plans, and bounds above those of other plans, are useless.
  Seconds known_step{std::numeric_limits<double>::infinity()};
  Seconds enough_bound{std::numeric_limits<double>::infinity()};
};

/// A search's result. The baselines are those of splits. The bound covers all shardings and splits,
/// and exists even if no sharding fits; 0: unknown (hap).
struct SpmdOutcome {
  plan::PlanOutcome outcome;
  bool was_ended = false;
};
Result<SpmdOutcome> plan_sharding(SpmdMethod method, const PlannerInputs& inputs,
                                  const plan::Problem& problem, const SpmdStart& start);

/// Sets a bound for the outcome's plan (claim_bound), and the resulting reason.
Result<void> set_bound(Seconds bound, bool was_ended, plan::PlanOutcome& outcome);

/// Puts a plan, priced, in the place of the outcome's if it fits and takes less, or the outcome has
/// none; its bound is set anew. Returns whether it was.
Result<bool> take_better(const plan::Problem& problem, const plan::Plan& plan,
                         const plan::Price& price, std::vector<std::string> why,
                         plan::PlanOutcome& outcome);

}  // namespace motley::search
