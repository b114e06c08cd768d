#pragma once

#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/control/training/training.h"
#include "motley/control/verify/comparing.h"

namespace motley::control {

/// PyTorch's own training of the user's module for a run, by python -m motley.verify_run.
struct EagerQuestion {
  std::string source;  ///< the argument of the exporter
  std::string python;  ///< interpreter with PyTorch and motley
  std::string folder;
};

/// Writes the samples of all steps, in order, into the question's folder, which it creates.
Result<void> write_batches(const PreparedRun& prepared, const EagerQuestion& question);

/// Trains the written batches in PyTorch's loop, by the run's plan and job. With a seed `changes`,
/// changes the last bits of all weights at random before every step, which shows what rounding
/// decides. Errors: the interpreter's.
Result<Trained> train_eagerly(const PreparedRun& prepared, const EagerQuestion& question,
                              std::optional<int> changes = std::nullopt);

}  // namespace motley::control
