#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/run/measure.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// Times a fixed compute loop of each rank (matrix products and element-wise work, about 25 ms)
/// alone, all ranks at once, and beside all-reduces of the group of all ranks that a second thread
/// keeps under way, as training's transfer lane does. `group` is all ranks, two or more. Returns
/// the samples of all ranks, on all ranks. About a second. Collective.
Result<std::vector<OverlapTime>> measure_overlap(WorkerSession& session, GroupId group);

}  // namespace motley::run
