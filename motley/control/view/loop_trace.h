#pragma once

#include <string>
#include <vector>

#include "motley/control/run_directory.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Steps of a script's own loop as a trace, of the last ones of which all ranks' work is known:
/// each device computes what it took, and is in the exchange of gradients from then to the end of
/// the step, which is that of all. Without such a step it is empty. `devices` by rank.
trace::Trace trace_loop(const Log& log, const std::vector<std::string>& devices);

}  // namespace motley::control
