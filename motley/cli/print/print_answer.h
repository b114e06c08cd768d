#pragma once

#include "motley/base/json_forward.h"
#include "motley/cli/context/context.h"
#include "motley/cluster/cluster.h"
#include "motley/plan/planner.h"

namespace motley::cli {

/// Returns the keys of docs/interfaces.md. `elapsed_s`: of the search.
Json outcome_to_json(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster,
                     double elapsed_s);

/// Reports an outcome without a plan: with --json as the result, and by the exit code.
Result<int> report_infeasible(const plan::PlanOutcome& outcome, const Json& object,
                              const Context& context);

}  // namespace motley::cli
