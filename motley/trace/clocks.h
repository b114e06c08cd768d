#pragma once

#include <string>
#include <vector>

#include "motley/trace/trace.h"

namespace motley::trace {

/// Moves a trace whose devices have separate clocks to the clock of the first one, beginning at 0.
/// `clocks`: per device, equal if shared. Assumes equal rates of clocks between two steps.
///
/// Collectives reveal the offsets: all members have the result at about the same time. The
/// exchanges of a step on a device and on the first one are paired in order if their names agree;
/// the upper median of the differences of their ends is the offset. Without common exchanges (the
/// stages of a pipeline) the ends of the steps are compared, which may be off by a fraction of a
/// step. Linear in the trace.
///
/// Example: all-reduces end at 10 and 20 here, at 1,010 and 1,021 there: subtracts 1,001 there.
void align_clocks(Trace& trace, const std::vector<std::string>& clocks);

}  // namespace motley::trace
