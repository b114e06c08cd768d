#pragma once

#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Removes from a measured trace on one clock the time that exchanges waited for other ranks. As in
/// a predicted trace, a collective then begins when its last member arrives, and a send or receive
/// when both sides have arrived. Leaves a trace of another program unchanged. O(intervals log
/// intervals).
///
/// Example: a reaches an all-reduce at 10, b at 60, and both have the result at 70. The interval
/// becomes 60 to 70 on both.
void leave_out_waits(const program::Program& program, trace::Trace& trace);

}  // namespace motley::control
