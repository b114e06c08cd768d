#pragma once

#include "motley/base/units.h"
#include "motley/search/spmd/study.h"

namespace motley::search {

/// A bound that holds for every plan of the space, for any ways, any set of devices and any shares,
/// under the costs' operator models. For a set S of devices, with a weight w_i for each, sum 1, a
/// step lasts at least as long as each of these sums (bound_terms.h):
///
///   busy    sum w_i compute_i, as each device computes so long; and what forward waits for
///           exchanges meanwhile. A device takes for a part p of an operator at least p times what
///           it takes for the whole, and at least its launch, so a split operator adds at least
///           what the launches weigh, and for the rest min w_i t_i; a whole one adds sum w_i t_i.
///   path    compute that waits for each other, with the exchanges that it waits for.
///   lane    all exchanges, which each device makes one by one.
///   after   forward, as in busy, and the exchanges of what comes after it.
///   before  the exchanges that the end of forward waits for, and the compute after it.
///
/// What is exchanged in buckets, gradients and parameters, counts by its bytes only. Any mean of
/// the sums is a bound too; the least mean over all choices of ways is found by elimination with
/// relaxed sharing (choice_problem.h). The best weights are found by cutting planes. Exchanges take
/// the least time at even shares. Over sets: the least; sets whose busy bound alone exceeds
/// `known`, the time of a plan, need no more. Of more than 4,096 sets only the busy bound of any
/// set, without launches, is said; after the question's deadline the busy bounds.
Seconds spmd_lower_bound(SpmdStudy& study, Seconds known);

}  // namespace motley::search
