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

/// A split and its simulated step.
struct PricedSplit {
  BatchSplit split;
  double seconds = 0;
};

/// What a planner of splits decides; everything around it is the same for all.
struct SplitChoice {
  std::optional<BatchSplit> split;     ///< empty: there is none, and `why` has the arithmetic
  std::optional<RegionChoice> region;  ///< instead of a split: operators split over devices
  std::optional<StagesChoice> stages;  ///< instead of a split: replicas cut into regions
  std::optional<double> seconds;       ///< its simulated step, where already known
  std::vector<std::string> why;
  std::int64_t considered = 0;  ///< plans priced beside those of the search
};

/// What is known before a planner decides.
struct Study {
  SplitSpace space;
  SplitSearch search;                        ///< best and bound under the step model
  std::optional<PricedSplit> equal, single;  ///< the baselines that fit
};

/// A planner whose plans are splits of the batch: prepares the study, asks `choose`, checks the
/// split against memory, prices it, and writes the outcome with bound, baselines and reasons.
class SplitPlanner : public plan::Planner {
 public:
  /// What the inputs point to must outlive it.
  explicit SplitPlanner(const PlannerInputs& inputs) : inputs_(inputs) {}
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const final;

 private:
  virtual Result<SplitChoice> choose(const Study& study) const = 0;

 protected:
  const PlannerInputs& inputs() const { return inputs_; }

 private:
  PlannerInputs inputs_;
};

/// Data-parallel plan of a split.
plan::Plan make_split_plan(const plan::Problem& problem, const BatchSplit& split);

/// After so many equal micro-batches the next number to try: the least that divides the batch and
/// is at least twice as many; 0: there is none. Example: of 12 samples 1, 2, 4, 12.
std::int64_t next_micro_batches(std::int64_t global_batch, std::int64_t times);

/// Step of a split by the evaluator's simulator.
Result<double> price(const SplitSpace& space, const BatchSplit& split);

/// The same number of samples everywhere, one more on the first devices where it does not divide;
/// devices that would get none are left out.
BatchSplit equal_split(const plan::Problem& problem);

/// Claims a bound for the outcome's plan. One above the plan's step is our fault and an error
/// (search.bound), but for the whole nanoseconds to which a simulator rounds instructions.
Result<void> claim_bound(Seconds bound, plan::PlanOutcome& outcome);

/// Two predictions that differ by no more than this share are equal: the simulator rounds each
/// instruction to whole nanoseconds, the step model does not.
inline constexpr double kSameStep = 1e-4;

}  // namespace motley::search
