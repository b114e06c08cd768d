#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/control/planning/inputs.h"
#include "motley/control/planning/planning.h"
#include "motley/data/dataset.h"
#include "motley/program/program.h"
#include "motley/run/evaluation.h"

namespace motley::control {

struct EvaluationChoices {
  data::DataSource data;     ///< no path: a script has the samples
  std::int64_t samples = 0;  ///< set where a script has them; else counted
  std::int64_t every = 0;    ///< in steps; 0: only at the end
  std::string watch = "loss";
  /// Evaluations without improvement before training stops; 0: unlimited.
  std::int64_t patience = 0;
};

/// An evaluation for workers, in batches of the plan's micro-batch, or fewer samples if a device
/// lacks memory beside the training state.
struct PreparedEvaluation {
  run::EvaluationJob job;                  ///< program files are not named yet
  std::vector<program::Program> programs;  ///< for whole batches, and for the remaining samples
};

/// Usage errors: a model file without an evaluation graph; an unknown metric to watch; fewer
/// samples than the model needs. Infeasible: one sample per device needs too much memory.
Result<PreparedEvaluation> prepare_evaluation(const Inputs& inputs, const Planned& planned,
                                              const EvaluationChoices& choices,
                                              std::int64_t samples);

}  // namespace motley::control
