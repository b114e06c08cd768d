#pragma once

#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Takes out of a measured trace by one clock what its exchanges waited for others: as in a
/// predicted one, a collective begins when its last member has come to it, a send or a receive when
/// both sides have. A trace of another program stays as it is. O(intervals log intervals).
///
/// Example: a comes to an all-reduce at 10, b at 60, both have the result at 70: 60 to 70 on both.
void leave_out_waits(const program::Program& program, trace::Trace& trace);

}  // namespace motley::control
