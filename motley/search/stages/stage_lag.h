#pragma once

#include <cstddef>

#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// The longer of a stage's messages from both neighbours beside its work on a micro-batch, to two
/// digits: what a plan calls a region's `lag`. Between stages of the same devices nothing is sent.
double find_lag(const StageSums& sums, const StageReplica& replica, std::size_t stage);

}  // namespace motley::search
