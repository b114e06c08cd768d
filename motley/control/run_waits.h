#pragma once

#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Removes from a measured trace on one clock the time that exchanges waited for other ranks: a
/// collective begins when its last member arrives, a send or receive when both sides have, as in a
/// predicted trace. Leaves a trace of another program unchanged. O(intervals log intervals).
///
/// Example: a reaches an all-reduce at 10, b at 60, both end at 70. Both then have 60 to 70.
void leave_out_waits(const program::Program& program, trace::Trace& trace);

}  // namespace motley::control
