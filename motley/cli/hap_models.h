#pragma once

#include "motley/base/result.h"
#include "motley/cli/context.h"
#include "motley/cli/verbs.h"

namespace motley::cli {

/// Is `plan` asked for HAP itself: by planner or by workload?
bool asks_for_hap(const PlanningOptions& options);

/// `plan` by HAP as released or as described, over a workload of its authors (peers/hap): step and
/// shares in HAP's own cost, on its authors' clusters or on a cluster file's devices.
Result<int> plan_hap(const PlanningOptions& options, const Context& context);

}  // namespace motley::cli
