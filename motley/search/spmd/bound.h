#pragma once

#include "motley/base/units.h"
#include "motley/search/spmd/study.h"

namespace motley::search {

/// Steps in how many micro-batches a bound holds for: in any number, or in one.
enum class BoundedBatches { kAny, kOne };

/// A bound that holds for every plan of the space, for any ways, any set of devices and any shares,
/// under the costs' operator models. A step lasts at least as long as each of some sums of compute
/// and exchanges (bound_terms.h), in which compute is that of any device, so the mean over devices
/// by any weights w_i, and as any mean of the sums does. The least such mean over all ways is found
/// by elimination with relaxed sharing (choice_problem.h); a device takes for a part of an operator
/// what mean_time.h says. Changes of form count as prices.h says (least_change).
///
/// Of each kind of devices the fullest stands for all: the same one has the largest part of
/// everything that is cut, as one vector of shares is. So a plan that takes less than `known`, the
/// time of a plan, has no share at which its device alone computes for as long; and operators that
/// are split by samples have equal parts, which prices on them see to, as multipliers of that.
///
/// The space is cut into parts, by how many devices of each kind are used, the samples that the
/// fullest has, and its share; always the part whose bound is least is bounded with better weights,
/// and cut in two when they give little more. Exchanges take the least of all sets of a part, and
/// of all ways in which devices of these kinds are joined (price/device_pools.h); compute is that
/// of the largest set. Weights are found by cutting planes, from what all ways that were seen take
/// (ways_taken.h). Work is limited by the number of choices; after the question's deadline no part
/// is bounded better. Of more than 4,096 sets only the busy bound of any set, without launches, is
/// said.
///
/// In any number of micro-batches nothing is known of shares, as each micro-batch is rounded.
///
/// Where micro-batches take turns (SpmdQuestion::turns) the bound is of such plans, in as many
/// micro-batches as the question's: of each lane's own work, and the lanes do as much for each
/// micro-batch. What a step has once counts 1 / micro_batches there.
Seconds spmd_lower_bound(SpmdStudy& study, Seconds known,
                         BoundedBatches batches = BoundedBatches::kAny);

}  // namespace motley::search
