#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/spmd/bound.h"
#include "motley/search/spmd/price_sharding.h"

namespace motley::search {

struct SpmdAnswer {
  std::optional<SpmdPlan> best;     ///< of those that fit
  std::optional<SpmdPlan> nearest;  ///< when none fits: the one that lacks least
  Seconds lower_bound;              ///< no plan of the space takes less, whatever its shares
  BoundedBatches bounded = BoundedBatches::kAny;  ///< of plans in so many micro-batches
  std::int64_t considered = 0;                    ///< plans priced by lowering and simulating
  bool is_exact = true;  ///< every choice for given shares was the best one
  /// The least that a plan takes that was priced and did not fit; infinity: all did.
  Seconds lacking_step{std::numeric_limits<double>::infinity()};
  bool was_ended = false;  ///< by the deadline, with more to try
};

/// Searches ways and shares together (docs/algorithms.md, "Sharding search"). For each set of
/// devices that is worth it (all; all but the slowest kind; ...; one node), from shares in
/// proportion to speed:
///   1. the ways that are best for the shares, by elimination (choice_problem.h), for several
///      opinions of how much of the gradients' exchange is hidden;
///   2. each lowered and simulated, so that overlap and memory are as they will be;
///   3. shares that even out what the simulated devices computed, and back to 1 while that helps.
/// Ways that compute for as long as the best plan's step, or exchange for clearly longer, are not
/// simulated. HAP's plan (hap_search.h) is considered, too. Where nothing fits the price of memory
/// is raised until something does. The bound is of plans in any number of micro-batches where
/// something that lacks memory takes less than what fits, so that more of them may help; else of
/// one, which can be said better. Of a step in several micro-batches there is none.
/// After the question's deadline no more is tried; one plan is priced in any case, and the bound
/// then is what is quick to say.
Result<SpmdAnswer> find_spmd_plan(SpmdStudy& study);

}  // namespace motley::search
