#include "motley/control/tried_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "motley/base/random.h"
#include "motley/base/text.h"

namespace motley::control {
namespace {

/// How a store names what a plan's step took.
std::string tried_quantity(const plan::Plan& plan, const cluster::Cluster& cluster) {
  return "step of plan " + hash_hex(plan::print_plan(plan, cluster));
}

/// By how much a measured step must be shorter to count against a price.
constexpr double kWorthAChange = 0.97;

}  // namespace

Result<void> remember_tried(const Inputs& inputs, const Adaptation& adaptation,
                            cost::ProfileStore& store) {
  for (const Candidate& candidate : adaptation.candidates) {
    if (!candidate.measured || !candidate.predicted) continue;
    const std::string quantity = tried_quantity(candidate.planned.plan, inputs.cluster);
    cost::PredictionEntry entry = prediction_entry(inputs, quantity.c_str());
    entry.predicted = candidate.predicted->step.value;
    entry.measured = candidate.measured->value;
    if (entry.predicted > 0 && entry.measured > 0) MOTLEY_RETURN_IF_ERROR(store.put(entry));
  }
  return {};
}

Result<void> prefer_measured(const Inputs& inputs, Answer& answer) {
  plan::PlanOutcome& outcome = answer.outcome;
  if (!outcome.plan || outcome.alternatives.empty() || !answer.priced.costs) return {};
  const cost::PredictionEntry own = prediction_entry(inputs, "");
  std::map<std::string, Seconds> measured;  // of each the newest
  for (const cost::PredictionEntry& entry : answer.priced.costs->earlier)
    if (entry.subject == own.subject && entry.cluster == own.cluster)
      measured[entry.quantity] = Seconds(entry.measured);
  const auto find = [&](const plan::Plan& plan) -> std::optional<Seconds> {
    const auto found = measured.find(tried_quantity(plan, inputs.cluster));
    return found == measured.end() ? std::nullopt : std::optional(found->second);
  };
  outcome.measured_step = find(*outcome.plan);
  plan::Alternative* best = nullptr;
  for (plan::Alternative& other : outcome.alternatives) {
    other.measured = find(other.plan);
    if (other.measured && (best == nullptr || *other.measured < *best->measured)) best = &other;
  }
  const bool is_better = best != nullptr && outcome.measured_step &&
                         best->measured->value < kWorthAChange * outcome.measured_step->value;
  if (!is_better) return {};
  MOTLEY_ASSIGN(const plan::Price price, answer.priced.evaluator->price(best->plan));
  outcome.why.insert(
      outcome.why.begin(),
      fmt::format("{} took {} in an earlier run; {}, of which {} is predicted, took {}",
                  describe_plan(best->plan, inputs.cluster), format_seconds(*best->measured),
                  describe_plan(*outcome.plan, inputs.cluster),
                  format_seconds(outcome.predicted_step), format_seconds(*outcome.measured_step)));
  plan::Alternative before{*outcome.plan, outcome.predicted_step, outcome.measured_step};
  outcome.plan = best->plan;
  outcome.predicted_step = price.step;
  outcome.rounding = price.rounding;
  outcome.measured_step = best->measured;
  outcome.reason = plan::Reason::kFeasible;
  outcome.stage_names.clear();
  outcome.runner_ups.clear();
  outcome.peak.clear();
  outcome.idle = inputs.devices;
  const std::vector<plan::Member> members = plan::members(*outcome.plan);
  for (std::size_t i = 0; i < members.size(); ++i) {
    outcome.peak.emplace_back(members[i].device, price.peaks[i]);
    std::erase(outcome.idle, members[i].device);
  }
  outcome.lower_bound = std::min(outcome.lower_bound, outcome.predicted_step);
  *best = std::move(before);
  return {};
}

}  // namespace motley::control
