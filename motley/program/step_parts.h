#pragma once

#include <span>
#include <vector>

#include "motley/program/step_shape.h"

namespace motley::program {

/// What a device's part of a step consists of, in seconds of its own work since it began: what
/// curves of a step hold (cost/step) at one number of samples. Waiting for others is in none.
struct StepParts {
  std::vector<double> ready;     ///< exchange k of those that are waited for at the end could start
  double end = 0;                ///< forward, backward and packing were done
  std::vector<double> update;    ///< seconds of what follows exchange k
  std::vector<double> exchange;  ///< of exchange k, as this device saw it
  double blocking = 0;           ///< of exchanges in the middle
};

/// Of a step of the program with that shape. By instruction: for how long the device had worked
/// when it was done (read of those of the compute lane that marks_parts names), and what each
/// exchange took.
StepParts find_step_parts(const StepShape& shape, std::span<const double> worked,
                          std::span<const double> exchanges);

/// By instruction: find_step_parts reads when it was done.
std::vector<bool> marks_parts(const StepShape& shape);

}  // namespace motley::program
