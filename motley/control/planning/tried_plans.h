#pragma once

#include "motley/control/planning/planning.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::control {

/// Stores a plan's measured step beside its predicted one; does nothing if either is unknown.
Result<void> remember_tried(const Inputs& inputs, const plan::Alternative& tried,
                            cost::ProfileStore& store);

/// Adds earlier measurements to the plan and its alternatives; a faster alternative replaces it.
Result<void> prefer_measured(const Inputs& inputs, Answer& answer);

}  // namespace motley::control
