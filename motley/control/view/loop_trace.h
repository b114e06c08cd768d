#pragma once

#include <string>
#include <vector>

#include "motley/control/run_directory.h"
#include "motley/trace/trace.h"

namespace motley::control {

/// Returns the last steps of a script's own loop with known times of all ranks, by rank in
/// `devices`. Each device computes, then exchanges gradients until the common end. Empty without
/// such a step.
trace::Trace trace_loop(const Log& log, const std::vector<std::string>& devices);

}  // namespace motley::control
