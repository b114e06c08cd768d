#pragma once

#include "motley/base/result.h"
#include "motley/cli/context.h"
#include "motley/cli/verbs.h"

namespace motley::cli {

/// `plan` with a layer profile of another tool in place of an exported model: the batch split over
/// the devices of the cluster whose kinds the profile has.
Result<int> plan_layers(const PlanningOptions& options, const Context& context);

/// `simulate` with a layer profile and a pipeline plan of that tool: step time and memory of every
/// stage.
Result<int> simulate_layers(const SimulateOptions& options, const Context& context);

}  // namespace motley::cli
