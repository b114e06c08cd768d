#include "motley/cli/print/print_answer.h"

#include "motley/base/json.h"
#include "motley/control/planning/planning.h"

namespace motley::cli {
namespace {

Json baseline_to_json(const plan::Baseline& baseline) {
  return {{"step_s", baseline.step.value}, {"fits", baseline.fits}, {"label", baseline.label}};
}

/// One row per region.
Json stages_to_json(const plan::PlanOutcome& outcome, const cluster::Cluster& cluster) {
  Json stages = Json::array();
  for (std::size_t r = 0; r < outcome.plan->replicas.size(); ++r) {
    const plan::Replica& replica = outcome.plan->replicas[r];
    for (std::size_t g = 0; g < replica.regions.size(); ++g) {
      Json devices = Json::array();
      for (const DeviceId id : replica.regions[g].devices)
        devices.push_back(cluster.device(id).name);
      const bool is_named = r < outcome.stage_names.size() && g < outcome.stage_names[r].size();
      stages.push_back({{"replica", r},
                        {"stage", g},
                        {"devices", std::move(devices)},
                        {"layers", is_named ? Json(outcome.stage_names[r][g]) : Json(nullptr)},
                        {"samples", replica.samples},
                        {"micro_batches", replica.micro_batches}});
    }
  }
  return stages;
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
  Json answer{{"planner", outcome.planner},
              {"outcome", plan::reason_name(outcome.reason)},
              {"predicted_step_s", priced ? Json(outcome.predicted_step.value) : Json(nullptr)},
              {"lower_bound_s", found ? Json(outcome.lower_bound.value) : Json(nullptr)},
              {"peak_bytes", peak},
              {"may_not_fit", outcome.may_not_fit},
              {"batch_split", split},
              {"idle", idle},
              {"baselines",
               {{"equal_split", baseline_to_json(outcome.equal_split)},
                {"best_single", baseline_to_json(outcome.best_single)}}},
              {"considered", outcome.considered},
              {"elapsed_s", elapsed_s},
              {"why", outcome.why}};
  if (found && plan::has_stages(*outcome.plan)) {
    answer["stages"] = stages_to_json(outcome, cluster);
    answer["runner_ups"] = Json::array();
    for (const plan::RunnerUp& each : outcome.runner_ups)
      answer["runner_ups"].push_back({{"plan", each.label}, {"step_s", each.step.value}});
  }
  return answer;
}

Result<int> report_infeasible(const plan::PlanOutcome& outcome, const Json& object,
                              const Context& context) {
  if (!context.json) return tl::make_unexpected(control::infeasible_error(outcome));
  context.result("", object);
  return kInfeasible;
}

}  // namespace motley::cli
