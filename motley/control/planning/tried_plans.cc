#include "motley/control/planning/tried_plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/control/planning/survivors.h"

namespace motley::control {
namespace {

/// Names of a plan's measured step in a store: its form, without devices' shares, and the whole.
struct TriedName {
  std::string form, whole;
};

TriedName name_tried(const plan::Plan& plan, const cluster::Cluster& cluster) {
  plan::Plan form = plan;
  for (plan::Replica& replica : form.replicas) {
    replica.samples = 1;
    for (plan::Region& region : replica.regions)
      std::fill(region.shares.begin(), region.shares.end(), 1);
  }
  const std::string name =
      "step of plan " + hash_hex(plan::print_plan(form, cluster)) + " shared as ";
  return {name, name + hash_hex(plan::print_plan(plan, cluster))};
}

class TriedPlans {
 public:
  TriedPlans(const std::vector<cost::PredictionEntry>& earlier, const Inputs& inputs)
      : cluster_(inputs.cluster) {
    const cost::PredictionEntry own = prediction_entry(inputs, "");
    for (const cost::PredictionEntry& entry : earlier)
      if (entry.subject == own.subject && entry.cluster == own.cluster) found_.push_back(&entry);
    std::reverse(found_.begin(), found_.end());
  }

  /// Returns the measured step of the plan. Otherwise scales its prediction by the error of a plan
  /// of the same form: prices that differ slightly give slightly different shares.
  std::optional<Seconds> find(const plan::Plan& plan, Seconds predicted) const {
    const TriedName name = name_tried(plan, cluster_);
    const cost::PredictionEntry* near = nullptr;
    for (const cost::PredictionEntry* entry : found_) {
      if (entry->quantity == name.whole) return Seconds(entry->measured);
      if (near == nullptr && entry->quantity.starts_with(name.form)) near = entry;
    }
    if (near == nullptr || predicted.value <= 0) return std::nullopt;
    return Seconds(near->measured * predicted.value / near->predicted);
  }

 private:
  const cluster::Cluster& cluster_;
  std::vector<const cost::PredictionEntry*> found_;  ///< newest first
};

Result<plan::Price> price_of(const Inputs& inputs, const Priced& priced, const plan::Plan& plan) {
  if (!must_survive(inputs)) return priced.evaluator->price(plan);
  MOTLEY_ASSIGN(const Planned planned, lower_plan(inputs, plan));
  return price_to_run(inputs, priced, planned);
}

/// An alternative's measured step must be below this part of the plan's to replace the plan.
constexpr double kWorthAChange = 0.97;

}  // namespace

Result<void> remember_tried(const Inputs& inputs, const plan::Alternative& tried,
                            cost::ProfileStore& store) {
  if (!tried.measured) return {};
  const TriedName name = name_tried(tried.plan, inputs.cluster);
  cost::PredictionEntry entry = prediction_entry(inputs, name.whole.c_str());
  entry.predicted = tried.step.value;
  entry.measured = tried.measured->value;
  if (entry.predicted <= 0 || entry.measured <= 0) return {};
  return store.put(entry);
}

Result<void> prefer_measured(const Inputs& inputs, Answer& answer) {
  plan::PlanOutcome& outcome = answer.outcome;
  if (!outcome.plan || outcome.alternatives.empty() || !answer.priced.costs) return {};
  const TriedPlans tried(answer.priced.costs->earlier, inputs);
  outcome.measured_step = tried.find(*outcome.plan, outcome.predicted_step);
  plan::Alternative* best = nullptr;
  for (plan::Alternative& other : outcome.alternatives) {
    other.measured = tried.find(other.plan, other.step);
    if (other.measured && (best == nullptr || *other.measured < *best->measured)) best = &other;
  }
  const bool is_better = best != nullptr && outcome.measured_step &&
                         best->measured->value < kWorthAChange * outcome.measured_step->value;
  if (!is_better) return {};
  MOTLEY_ASSIGN(const plan::Price price, price_of(inputs, answer.priced, best->plan));
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
