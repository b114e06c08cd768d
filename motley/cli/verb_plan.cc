#include <fmt/format.h>

#include <set>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/cli/hap_models.h"
#include "motley/cli/layers.h"
#include "motley/cli/planning.h"
#include "motley/cli/prediction.h"
#include "motley/cli/torch_version.h"
#include "motley/cost/profile_cost.h"
#include "motley/report/report.h"

namespace motley::cli {

namespace {

/// Keys of the inputs' devices whose newest rounds contradict the older ones.
Result<std::vector<std::string>> find_drifted(const Inputs& inputs, const std::string& torch,
                                              const cost::ProfileStore& store) {
  std::set<cost::DeviceKey> keys;
  for (const DeviceId id : inputs.devices) {
    keys.insert(cost::device_key(inputs.cluster.device(id), torch));
    keys.insert(cost::shared_key(inputs.cluster, id, torch));
    keys.insert(cost::emulated_key(inputs.cluster, id, torch));
  }
  std::vector<std::string> drifted;
  for (const cost::DeviceKey& key : keys) {
    MOTLEY_ASSIGN(const auto entries, store.ops(key));
    for (const cost::OpEntry& entry : entries)
      if (entry.has_drifted) drifted.push_back(entry.key + " on " + key.kind);
  }
  return drifted;
}

/// The planner's steps with what devices vary by, which it leaves out: as much as the chosen
/// plan's.
void add_variation(double factor, plan::PlanOutcome& outcome) {
  for (Seconds* step :
       {&outcome.predicted_step, &outcome.equal_split.step, &outcome.best_single.step})
    *step = *step * factor;
}

}  // namespace

Result<int> profile_verb(const ProfileOptions& options, const Context& context) {
  PlanningOptions planning = options.planning;
  const bool corrects = !options.from_run.empty();
  if (corrects && planning.global_batch == 0) planning.global_batch = 1;  // the run has its own
  MOTLEY_ASSIGN(const Inputs inputs, read_inputs(planning, context));
  MOTLEY_ASSIGN(const std::string torch, worker_version(context));
  const std::string path = profile_path(planning, context);
  MOTLEY_ASSIGN(cost::ProfileStore store, cost::ProfileStore::open(path));
  MOTLEY_ASSIGN(const MeasureSummary summary,
                corrects ? correct_from_run(options.from_run, torch, inputs, store)
                         : measure(inputs, store, context));
  MOTLEY_ASSIGN(const auto drifted, find_drifted(inputs, torch, store));
  std::string text = fmt::format("measured {} times, spread {:.1f}% (median), kept in {}\n",
                                 summary.entries, 100 * summary.spread, path);
  if (!drifted.empty())
    text += fmt::format(
        "{} times have drifted: the newest two rounds contradict the older ones and replace them "
        "({}{})\n",
        drifted.size(), drifted[0], drifted.size() > 1 ? ", ..." : "");
  context.result(text, {{"entries", summary.entries},
                        {"spread", summary.spread},
                        {"drifted", drifted},
                        {"store", path}});
  return kDone;
}

Result<int> plan_verb(const PlanningOptions& options, const Context& context) {
  if (options.layers.is_given()) return plan_layers(options, context);
  if (asks_for_hap(options)) return plan_hap(options, context);
  MOTLEY_ASSIGN(Planned planned, make_plan(options, context));
  plan::PlanOutcome& outcome = planned.outcome;
  if (!outcome.plan) return report_infeasible(outcome, outcome_to_json(planned), context);
  if (!options.output.empty())
    MOTLEY_RETURN_IF_ERROR(
        write_file_atomic(options.output, plan::print_plan(*outcome.plan, planned.inputs.cluster)));
  MOTLEY_ASSIGN(const auto prediction,
                find_prediction(planned.inputs, *planned.costs, *outcome.plan, 1, context));
  if (prediction) add_variation(prediction->step.value / outcome.predicted_step.value, outcome);
  Json object = outcome_to_json(planned);
  if (prediction) add_prediction(*prediction, object);
  std::string text = report::print_outcome(outcome, planned.inputs.cluster);
  if (prediction) text += "\n" + print_prediction(*prediction);
  if (!options.output.empty()) text += fmt::format("\nwrote {}\n", options.output);
  const bool printed = !context.print_phase.empty();
  if (!printed || context.json) context.result(text, object);
  return kDone;
}

}  // namespace motley::cli
