#pragma once

#include "motley/cli/planning.h"
#include "motley/trace/trace.h"

namespace motley::cli {

/// Lowers a plan and runs it on the clock of the inputs' cost tables.
Result<trace::Trace> predict(const Inputs& inputs, const search::Costs& costs,
                             const plan::Plan& plan, int steps);

/// Reads a plan file for the inputs; verifies it against model, cluster and memory (exit 4 if
/// stale, 3 if it does not fit).
Result<plan::Plan> read_plan(const std::string& path, const Inputs& inputs);

/// Every device of the plan holds its program within its memory; else infeasible, with arithmetic.
Result<void> check_memory(const Inputs& inputs, const plan::Plan& plan);

}  // namespace motley::cli
