#pragma once

#include "motley/base/json_forward.h"
#include "motley/cli/context/context.h"
#include "motley/cluster/cluster.h"
#include "motley/plan/planner.h"

namespace motley::cli {

/// Keys of docs/interfaces.md for what a planner found in so many seconds.
Json outcome_to_json(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster,
                     double elapsed_s);

/// An outcome without a plan as a verb's answer: with --json the object is the result, and only the
/// exit code tells.
Result<int> report_infeasible(const plan::PlanOutcome& outcome, const Json& object,
                              const Context& context);

}  // namespace motley::cli
