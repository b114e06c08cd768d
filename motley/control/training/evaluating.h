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

/// How a training is to be evaluated.
struct EvaluationChoices {
  data::DataSource data;     ///< no path: a script has the samples
  std::int64_t samples = 0;  ///< where a script has them; else they are counted
  std::int64_t every = 0;    ///< steps; 0: at the end only
  std::string watch = "loss";
  std::int64_t patience = 0;  ///< evaluations without a better one until training ends; 0: none
};

/// An evaluation as workers need it. Batches of as many samples as a micro-batch of the plan has,
/// or fewer where a device has not the memory for so many beside what training keeps.
struct PreparedEvaluation {
  run::EvaluationJob job;                  ///< its programs' files are not named yet
  std::vector<program::Program> programs;  ///< of whole batches, and of the samples left
};

/// Usage errors: a model file without the graph for it; a metric to be watched that is not there;
/// fewer samples than the model wants. Infeasible where one sample a device is too much.
Result<PreparedEvaluation> prepare_evaluation(const Inputs& inputs, const Planned& planned,
                                              const EvaluationChoices& choices,
                                              std::int64_t samples);

}  // namespace motley::control
