#pragma once

#include <cstddef>

#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// Returns the ratio of a stage's longer message, from either neighbour, to its work on a
/// micro-batch, to two digits: a region's `lag` in plans. Stages on the same devices send nothing.
double find_lag(const StageSums& sums, const StageReplica& replica, std::size_t stage);

}  // namespace motley::search
