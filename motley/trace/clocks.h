#pragma once

#include <string>
#include <vector>

#include "motley/trace/trace.h"

namespace motley::trace {

/// Moves a trace whose devices have separate clocks to the clock of the first device, with its
/// begin at 0. `clocks`: one name per device, equal for devices that share a clock. Assumes that
/// between two steps a clock runs at the same rate as the others.
///
/// Collectives reveal the offsets: all members have the result at about the same time. The
/// exchanges of a step on a device and on the first one are paired in order, if their names agree.
/// The median difference of their ends is the offset. Without exchanges in common (the stages of a
/// pipeline) the ends of the steps are compared, which may be off by a fraction of a step. Linear
/// in the trace.
///
/// Example: all-reduces end at 10 and 20 here, at 1,010 and 1,021 there: subtracts 1,001 there (the
/// upper median).
void align_clocks(Trace& trace, const std::vector<std::string>& clocks);

}  // namespace motley::trace
