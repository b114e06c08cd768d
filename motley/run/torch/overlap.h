#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/run/measure.h"
#include "motley/run/torch/worker_session.h"

namespace motley::run {

/// Times a fixed compute loop of each rank (matrix products and element-wise work, about 25 ms),
/// first alone, on all ranks at once, then beside all-reduces of all ranks that a second thread
/// keeps in flight, as training's transfer lane does. `group`: all ranks, at least two. Returns the
/// times of all ranks on all ranks. Takes about a second. Collective.
Result<std::vector<OverlapTime>> measure_overlap(WorkerSession& session, GroupId group);

}  // namespace motley::run
