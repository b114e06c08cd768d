#pragma once

#include "motley/control/planning/planning.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::control {

/// Stores the measured step of a plan beside its predicted one. Does nothing where either is
/// unknown.
Result<void> remember_tried(const Inputs& inputs, const plan::Alternative& tried,
                            cost::ProfileStore& store);

/// Puts what earlier runs measured beside the answer's plan and its alternatives; where one of
/// these took less than the answer, it takes its place.
Result<void> prefer_measured(const Inputs& inputs, Answer& answer);

}  // namespace motley::control
