#pragma once

#include <string>
#include <vector>

#include "motley/control/planning/measuring.h"
#include "motley/control/planning/prediction.h"
#include "motley/control/training/monitor.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::control {

/// Puts what a run measured into the store as one more round: of each operator, or of whole steps
/// of emulated devices. The run is of the inputs' model and cluster (else stale). Usage error: its
/// trace holds no step.
Result<KeptTimes> correct_from_run(const std::string& run_dir, const std::string& torch,
                                   const Inputs& inputs, cost::ProfileStore& store);

/// Keeps a prediction beside what the run measured, so that later intervals rest on it: of the step
/// and of the fullest device's memory. Those of modelled times are not kept: they tell of the
/// model, not of the machine.
Result<void> remember(const Inputs& inputs, const Predicted& predicted, const Measured& measured,
                      cost::ProfileStore& store);

}  // namespace motley::control
