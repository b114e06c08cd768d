#pragma once

#include <cstddef>

#include "motley/plan/plan.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Returns a stage's longer message, from either neighbour, relative to its work on a micro-batch,
/// with two decimals: a region's `lag` in plans. Stages on the same devices send nothing.
double find_lag(const StageSums& sums, const StageReplica& replica, std::size_t stage);

/// Scales the speeds of regions to the fastest one's, in whole parts of `parts` and at least one of
/// them; without stages sets them to 1.
void scale_speeds(double parts, plan::Plan& plan);

}  // namespace motley::search
