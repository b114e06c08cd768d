#include "motley/control/training/replanning.h"

#include <algorithm>
#include <utility>

#include "motley/plan/shares.h"

namespace motley::control {
namespace {

/// Enough for what a search finds at once; training waits for it after a loss.
constexpr Seconds kSearch{0.5};

/// Splits the batch in the plan's proportions, per micro-batch if the plan shows several.
plan::Plan share_identical(const plan::Plan& plan, const std::vector<DeviceId>& devices) {
  std::vector<double> known, shares;
  for (const plan::Member& member : plan::members(plan))
    known.push_back(static_cast<double>(member.samples));
  std::sort(known.begin(), known.end());
  for (const DeviceId device : devices) {
    shares.push_back(known[known.size() / 2]);
    for (const plan::Member& member : plan::members(plan))
      if (member.device == device) shares.back() = static_cast<double>(member.samples);
  }
  const std::int64_t times = plan::shown_micro_batches(plan);
  std::vector<std::int64_t> samples = plan::round_shares(shares, plan.global_batch / times);
  for (std::int64_t& each : samples) each *= times;
  return plan::split_instead(plan, devices, samples);
}

}  // namespace

Replan make_replanner(const ChosenPlan& chosen, PlanChoices choices) {
  const bool is_own = !choices.manual.empty() || !choices.stages.empty();
  if (is_own) choices.planner = "auto";
  choices.manual.clear();
  choices.stages.clear();
  choices.time_limit = std::min(choices.time_limit.value_or(kSearch), kSearch);
  return [&chosen, choices](const std::vector<DeviceId>& devices,
                            const BatchNow& batch) -> Result<Candidate> {
    Inputs inputs = chosen.inputs;
    inputs.devices = devices;
    inputs.global_batch = batch.samples;
    Candidate candidate;
    if (chosen.priced.evaluator) {
      MOTLEY_ASSIGN(plan::PlanOutcome outcome, plan_again(inputs, choices, chosen.priced));
      if (!outcome.plan) return tl::make_unexpected(infeasible_error(outcome));
      candidate.planned.plan = std::move(*outcome.plan);
      candidate.planned.plan.tf32 = inputs.tf32;
      candidate.priced = outcome.predicted_step;
    } else {
      plan::Plan plan = chosen.planned.plan;
      plan.global_batch = batch.samples;
      candidate.planned.plan = share_identical(plan, devices);
    }
    candidate.lr_factor = batch.lr_factor;
    candidate.label = describe_plan(candidate.planned.plan, inputs.cluster);
    return candidate;
  };
}

}  // namespace motley::control
