#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/measuring.h"
#include "motley/control/planning/prediction.h"
#include "motley/control/training/monitor.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::control {

/// Adds a run's measurements to the store as one round: of operators, or of emulated devices' whole
/// steps. Stale: it had another model or cluster. Usage error: its trace has no step.
Result<KeptTimes> correct_from_run(const std::string& run_dir, const std::string& torch,
                                   const Inputs& inputs, cost::ProfileStore& store);

/// Stores predictions of step and fullest memory with their measurements for later intervals. Skips
/// modelled times: their errors are the model's, not the machine's.
Result<void> remember(const Inputs& inputs, const Predicted& predicted, const Measured& measured,
                      cost::ProfileStore& store);

}  // namespace motley::control
