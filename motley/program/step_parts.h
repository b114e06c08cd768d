#pragma once

#include <span>
#include <vector>

#include "motley/program/step_shape.h"

namespace motley::program {

/// The parts of a device's step, in seconds of its own work since the step began, without waiting
/// for others. Curves of a step (cost/step) hold them at one number of samples.
struct StepParts {
  std::vector<double> ready;     ///< exchange k of those that the tail waits for could start
  double end = 0;                ///< forward, backward and packing were done
  std::vector<double> update;    ///< seconds of work after exchange k
  std::vector<double> exchange;  ///< duration of exchange k on this device
  double blocking = 0;           ///< duration of exchanges in the middle
};

/// Finds the parts of one step. By instruction, `worked`: the device's work when it ended (read
/// only where marks_parts says), and `exchanges`: the duration of each exchange.
StepParts find_step_parts(const StepShape& shape, std::span<const double> worked,
                          std::span<const double> exchanges);

/// Marks the instructions whose end find_step_parts reads.
std::vector<bool> marks_parts(const StepShape& shape);

}  // namespace motley::program
