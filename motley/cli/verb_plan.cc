#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/planning.h"
#include "motley/cli/prediction.h"
#include "motley/cli/torch_version.h"
#include "motley/report/report.h"

namespace motley::cli {

Result<int> profile_verb(const PlanningOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const Inputs inputs, read_inputs(options, context));
  const std::string path = profile_path(options, context);
  MOTLEY_ASSIGN(cost::ProfileStore store, cost::ProfileStore::open(path));
  MOTLEY_ASSIGN(const MeasureSummary summary, measure(inputs, store, context));
  context.result(fmt::format("measured {} times, spread {:.1f}% (median), kept in {}\n",
                             summary.entries, 100 * summary.spread, path),
                 {{"entries", summary.entries}, {"spread", summary.spread}, {"store", path}});
  return kDone;
}

Result<int> plan_verb(const PlanningOptions& options, const Context& context) {
  MOTLEY_ASSIGN(const Planned planned, make_plan(options, context));
  const plan::PlanOutcome& outcome = planned.outcome;
  Json object = outcome_to_json(planned);
  if (!outcome.plan) {
    if (context.json) context.result("", object);
    return context.json ? Result<int>(kInfeasible) : tl::make_unexpected(infeasible_error(outcome));
  }
  if (!options.output.empty())
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(options.output, plan::print_plan(*outcome.plan, planned.inputs.cluster)));
  MOTLEY_ASSIGN(const Prediction prediction,
                predict(planned.inputs, *planned.costs, *outcome.plan, 1));
  add_prediction(prediction, object);
  std::string text = report::print_outcome(outcome, planned.inputs.cluster);
  text += "\n" + print_prediction(prediction);
  if (!options.output.empty()) text += fmt::format("\nwrote {}\n", options.output);
  const bool printed = !context.print_phase.empty();
  if (!printed || context.json) context.result(text, object);
  return kDone;
}

}  // namespace motley::cli
