#pragma once

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// Runs a graph whose lanes slow each other, in order of time: the end of slowed work depends on
/// when the other lane's tasks begin and end. Ignores `options.before`.
///
/// At each time all due tasks end first, then all ready tasks begin, and last the work in flight
/// gets its rate: 1 / (stretch * (1 + factor)), factor 0 while nothing slows it. Remaining work is
/// a real number of nanoseconds; ends are rounded to the nearest one. Without slow-downs the times
/// are those of the longest paths.
///
/// Cost: log(lanes) for each task and each begin or end that changes a rate, otherwise linear.
///
/// Example: 100 ns of work beside a transfer from 0 to 40 at factor 0.25: 40 / 1.25 = 32 are done
/// by 40, the other 68 by 108 = 100 + 0.25 / 1.25 * 40.
tl::expected<TaskTimes, Deadlock> run_in_order(const TaskGraph& graph, const TimesOptions& options);

}  // namespace motley::simulate
