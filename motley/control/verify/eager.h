#pragma once

#include <optional>
#include <string>

#include "motley/base/result.h"
#include "motley/control/training/training.h"
#include "motley/control/verify/comparing.h"

namespace motley::control {

/// PyTorch's own training of a run: of the user's module, by python -m motley.verify_run.
struct EagerQuestion {
  std::string source;  ///< what the exporter's command line was given
  std::string python;  ///< interpreter with PyTorch and motley
  std::string folder;  ///< for what is written on the way
};

/// Writes the samples of the prepared run's steps, in their order, into the question's folder,
/// which is made.
Result<void> write_batches(const PreparedRun& prepared, const EagerQuestion& question);

/// Has the loop train on the batches that were written, by the run's plan and job. With `changes`,
/// a seed, the last bits of all weights are changed at random before every step: what that makes of
/// a training says how much rounding alone decides. Errors: what the interpreter said.
Result<Trained> train_eagerly(const PreparedRun& prepared, const EagerQuestion& question,
                              std::optional<int> changes = std::nullopt);

}  // namespace motley::control
