#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/measuring.h"
#include "motley/control/planning/prediction.h"
#include "motley/control/training/monitor.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::control {

/// Adds a run's measurements to the store as one more round: of each operator, or of whole steps on
/// emulated devices. Stale: the run has another model or cluster. Usage error: its trace has no
/// step.
Result<KeptTimes> correct_from_run(const std::string& run_dir, const std::string& torch,
                                   const Inputs& inputs, cost::ProfileStore& store);

/// Stores a prediction with the run's measurement, of the step and of the fullest device's memory,
/// as a basis of later prediction intervals. Skips predictions from modelled times: they reflect
/// the model, not the machine.
Result<void> remember(const Inputs& inputs, const Predicted& predicted, const Measured& measured,
                      cost::ProfileStore& store);

}  // namespace motley::control
