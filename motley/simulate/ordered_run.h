#pragma once

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// Runs a graph in which lanes slow each other, in order of time: work that another lane slows has
/// no end that could be known before that lane's tasks begin and end. `options.before` is not read.
///
/// At each time everything that ends then ends first, then what can begin begins, and last the work
/// under way gets its rate from what is under way now: 1 / (stretch * (1 + factor)), factor 0 while
/// nothing slows it. What is left of it is kept as a real number of nanoseconds; its end is rounded
/// to the nearest one. Without slow-downs the times are those of the longest paths.
///
/// Cost: log(lanes) for each task and for each begin or end that changes a rate, linear in the
/// rest.
///
/// Example: 100 ns of work beside a transfer from 0 to 40 at factor 0.25: 40 / 1.25 = 32 are done
/// by 40, the other 68 by 108 = 100 + 0.25 / 1.25 * 40.
tl::expected<TaskTimes, Deadlock> run_in_order(const TaskGraph& graph, const TimesOptions& options);

}  // namespace motley::simulate
