#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/control/comparing.h"
#include "motley/control/training.h"

namespace motley::control {

/// PyTorch's own training of a run: of the user's module, by python -m motley.verify_run.
struct EagerQuestion {
  std::string source;  ///< what the exporter's command line was given
  std::string python;  ///< interpreter with PyTorch and motley
  std::string folder;  ///< for what is written on the way
};

/// What it gave, and what the same loop makes of weights whose last bits are changed before every
/// step: how much rounding alone decides.
struct EagerTrained {
  Trained trained;
  std::optional<Trained> disturbed;
};
enum class Disturbed { kNo, kYes };

/// Writes the samples of the prepared run's steps, in their order, and has the loop train on them
/// by the run's plan and job. Errors: what the interpreter said.
Result<EagerTrained> train_eagerly(const PreparedRun& prepared, const EagerQuestion& question,
                                   Disturbed disturbed);

}  // namespace motley::control
