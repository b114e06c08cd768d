#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "motley/base/units.h"
#include "motley/cost/instruction_times.h"
#include "motley/program/step_shape.h"
#include "motley/search/split/split_evaluator.h"

namespace motley::search {

using program::find_step_shape;
using program::StepShape;

/// Builds the curves of a device of that speed: points at the batches of `times` and one beyond,
/// which fixes the last slope. O(exchanges * batches + instructions * batches).
StepCurves build_curves(const StepShape& shape, const cost::InstructionTimes& times, double speed);

/// Returns, for each blocking exchange, the compute seconds between its readiness and its waiter at
/// the largest batch of `times`: the most slack it can have.
std::vector<double> blocking_slack(const StepShape& shape, const cost::InstructionTimes& times,
                                   double speed);

}  // namespace motley::search
