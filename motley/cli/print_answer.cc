#include "motley/cli/print_answer.h"

#include "motley/base/json.h"
#include "motley/control/planning.h"

namespace motley::cli {
namespace {

Json baseline_to_json(const plan::Baseline& baseline) {
  return {{"step_s", baseline.step.value}, {"fits", baseline.fits}, {"label", baseline.label}};
}

}  // namespace

Json outcome_to_json(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster,
                     double elapsed_s) {
  Json peak = Json::object(), split = Json::object(), idle = Json::array();
  for (const auto& [device, bytes] : outcome.peak) peak[cluster.device(device).name] = bytes.value;
  if (outcome.plan)
    for (const auto& [device, samples] : plan::members(*outcome.plan))
      split[cluster.device(device).name] = samples;
  for (const DeviceId device : outcome.idle) idle.push_back(cluster.device(device).name);
  const bool found = outcome.plan.has_value();
  const bool priced = found && outcome.predicted_step.value > 0;
  return {{"planner", outcome.planner},
          {"outcome", plan::reason_name(outcome.reason)},
          {"predicted_step_s", priced ? Json(outcome.predicted_step.value) : Json(nullptr)},
          {"lower_bound_s", found ? Json(outcome.lower_bound.value) : Json(nullptr)},
          {"peak_bytes", peak},
          {"batch_split", split},
          {"idle", idle},
          {"baselines",
           {{"equal_split", baseline_to_json(outcome.equal_split)},
            {"best_single", baseline_to_json(outcome.best_single)}}},
          {"considered", outcome.considered},
          {"elapsed_s", elapsed_s},
          {"why", outcome.why}};
}

Result<int> report_infeasible(const plan::PlanOutcome& outcome, const Json& object,
                              const Context& context) {
  if (!context.json) return tl::make_unexpected(control::infeasible_error(outcome));
  context.result("", object);
  return kInfeasible;
}

}  // namespace motley::cli
