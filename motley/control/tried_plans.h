#pragma once

#include "motley/control/adapting.h"
#include "motley/control/planning.h"
#include "motley/cost/measured/profile_store.h"

namespace motley::control {

/// Keeps what the plans of a run took that were tried, beside what was predicted of them.
Result<void> remember_tried(const Inputs& inputs, const Adaptation& adaptation,
                            cost::ProfileStore& store);

/// Puts what earlier runs measured beside the answer's plan and its alternatives; where one of
/// these took less than the answer, it takes its place.
Result<void> prefer_measured(const Inputs& inputs, Answer& answer);

}  // namespace motley::control
