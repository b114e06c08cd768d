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
  std::optional<SpmdPlan> best;                   ///< of those that fit
  std::optional<SpmdPlan> nearest;                ///< if none fits: the one that lacks least
  Seconds lower_bound;                            ///< of all plans in the space, for any shares
  BoundedBatches bounded = BoundedBatches::kAny;  ///< number of micro-batches of the bound
  std::int64_t considered = 0;                    ///< plans priced by lowering and simulating
  bool is_exact = true;                           ///< every choice for given shares was optimal
  /// Least step of priced plans that did not fit; infinity if all did.
  Seconds lacking_step{std::numeric_limits<double>::infinity()};
  bool was_ended = false;  ///< by the deadline, before everything was tried
};

/// Searches ways and shares together (docs/algorithms.md, "Sharding search"). For each promising
/// set of devices (all; all but the slowest kind; ...; one node), with initial shares proportional
/// to speed:
///  1. finds the best ways for the shares by elimination (choice_problem.h), under several opinions
///  of
///     how much of the gradients' exchange is hidden;
///  2. lowers and simulates each, for the actual overlap and memory;
///  3. balances shares by the simulated compute, and repeats from 1 while that helps.
/// Ways whose compute takes as long as the best plan's step, or whose exchanges take clearly
/// longer, are not simulated. HAP's plan (hap_search.h) is considered, too. If nothing fits, the
/// price of memory is raised until something does. The bound covers any number of micro-batches if
/// a plan that lacks memory is faster than those that fit, so that more micro-batches may help;
/// otherwise it covers one, and is tighter. A step in several micro-batches has no bound. After the
/// question's deadline nothing more is tried, but one plan is always priced, and the bound is the
/// one that is quick to compute.
Result<SpmdAnswer> find_spmd_plan(SpmdStudy& study);

}  // namespace motley::search
