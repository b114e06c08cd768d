#pragma once

#include <cstddef>

#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Returns a stage's longer message, from either neighbour, relative to its work on a micro-batch,
/// with two decimals: a region's `lag` in plans. Stages on the same devices send nothing.
double find_lag(const StageSums& sums, const StageReplica& replica, std::size_t stage);

}  // namespace motley::search
