#pragma once

#include "motley/base/units.h"
#include "motley/search/spmd/study.h"

namespace motley::search {

/// The numbers of micro-batches for which a bound holds: any, or one.
enum class BoundedBatches { kAny, kOne };

/// Returns a lower bound of every plan in the space, over all ways, sets of devices and shares,
/// under the costs' operator models. A step takes at least each of several sums of compute and
/// exchanges (bound_terms.h), with the compute of any one device. So it takes at least any weighted
/// mean of these sums, and of the devices with weights w_i. The least such mean over all ways is
/// found by elimination with relaxed sharing (choice_problem.h). mean_time.h gives a device's time
/// for a part of an operator, prices.h the cost of changes of form (least_change).
///
/// The fullest device of each kind represents it: the same device has the largest part of
/// everything that is cut, as there is one vector of shares. So a plan faster than `known`, the
/// time of a plan, has no share at which its device alone computes that long. Operators split by
/// samples have equal parts; prices of parts, used as multipliers, enforce this.
///
/// The space is cut into parts by the numbers of used devices per kind, and the fullest device's
/// samples and share. The part with the least bound gets better weights, or is cut in two if these
/// gain little. Exchanges take the least time over all sets of a part, and over all connections of
/// devices of these kinds (price/device_pools.h); compute is that of the largest set. Weights are
/// found by cutting planes from the times of all seen ways (ways_taken.h). The number of solved
/// choices is limited, and after the question's deadline no part gets a better bound. With more
/// than 4,096 sets only the busy bound of any set, without launches, is returned.
///
/// With any number of micro-batches shares are unknown, as each micro-batch is rounded.
///
/// With interleaved micro-batches (SpmdQuestion::turns) the bound is for such plans with the
/// question's number of micro-batches. It uses each lane's total work, which is the same for each
/// micro-batch. What a step has once counts 1 / micro_batches. Of plans that may carry exchanges
/// into the next step (SpmdQuestion::carries), too, it uses each lane's total work.
Seconds spmd_lower_bound(SpmdStudy& study, Seconds known,
                         BoundedBatches batches = BoundedBatches::kAny);

}  // namespace motley::search
