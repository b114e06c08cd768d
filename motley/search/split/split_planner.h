#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/region/random_region.h"
#include "motley/search/region/random_stages.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/split/split_search.h"
#include "motley/search/split/split_space.h"

namespace motley::search {

struct PricedSplit {
  BatchSplit split;
  double seconds = 0;
};

struct SplitChoice {
  std::optional<BatchSplit> split;     ///< empty: none, `why` has the arithmetic
  std::optional<RegionChoice> region;  ///< instead of a split: operators split over devices
  std::optional<StagesChoice> stages;  ///< instead of a split: replicas cut into regions
  std::optional<double> seconds;       ///< its simulated step, if already known
  std::vector<std::string> why;
  std::int64_t considered = 0;  ///< plans priced besides those of the search
};

struct Study {
  SplitSpace space;
  SplitSearch search;                        ///< best and bound under the step model
  std::optional<PricedSplit> equal, single;  ///< the baselines that fit
};

/// Base of planners of batch splits: prepares the study, calls `choose`, checks memory, prices the
/// split, and writes the outcome with bound, baselines and reasons.
class SplitPlanner : public plan::Planner {
 public:
  /// All that the inputs point to must outlive it.
  explicit SplitPlanner(const PlannerInputs& inputs) : inputs_(inputs) {}
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const final;

 private:
  virtual Result<SplitChoice> choose(const Study& study) const = 0;

 protected:
  const PlannerInputs& inputs() const { return inputs_; }

 private:
  PlannerInputs inputs_;
};

plan::Plan make_split_plan(const plan::Problem& problem, const BatchSplit& split);

/// Returns the next number of equal micro-batches to try: the least divisor of the batch that is at
/// least twice `times`, or 0. Example for 12 samples: 1, 2, 4, 12.
std::int64_t next_micro_batches(std::int64_t global_batch, std::int64_t times);

/// Returns the step of a split by the evaluator's simulator.
Result<double> price(const SplitSpace& space, const BatchSplit& split);

/// Splits the batch equally; the first devices get the remainder, others may get none.
BatchSplit equal_split(const plan::Problem& problem);

/// Sets the outcome's lower bound. A bound above the plan's step is an internal error
/// (search.bound), except for the simulator's rounding to nanoseconds.
Result<void> claim_bound(Seconds bound, plan::PlanOutcome& outcome);

/// relative; predictions this close are equal, as the simulator rounds instructions to nanoseconds
/// and the step model does not
inline constexpr double kSameStep = 1e-4;

}  // namespace motley::search
