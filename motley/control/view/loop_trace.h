#pragma once

#include <string>
#include <vector>

#include "motley/control/run_directory.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Returns the last steps of a script's own loop for which all ranks' times are known, as a trace.
/// Each device computes for its time, and then exchanges gradients until the common end of the
/// step. Empty without such a step. `devices` by rank.
trace::Trace trace_loop(const Log& log, const std::vector<std::string>& devices);

}  // namespace motley::control
