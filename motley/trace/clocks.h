#pragma once

#include <string>
#include <vector>

#include "motley/trace/trace.h"

namespace motley::trace {

/// Puts a trace whose devices have clocks of their own on the clock of the first, and lets it begin
/// at 0. `clocks`: by device, equal where they share one. Between two steps a clock is taken to
/// run as the others do.
///
/// Collectives tell the clocks apart: all members have the result at about the same time. Of a
/// device and the first one the exchanges of a step are paired in their order, if they are the same
/// by name; the median of how far their ends lie apart is the offset of the clock. Without any (the
/// stages of a pipeline) the ends of the steps stand for them, which may be off by a part of a
/// step. Linear in the trace.
///
/// Example: all-reduces end at 10 and 20 here, and at 1,010 and 1,021 there: 1,001 are subtracted
/// there (the upper median).
void align_clocks(Trace& trace, const std::vector<std::string>& clocks);

}  // namespace motley::trace
