#include "motley/search/model_stages/stage_pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "motley/base/text.h"
#include "motley/search/spmd/spmd_planner.h"

namespace motley::search {
namespace {

/// Most of a step that collectives of one micro-batch, simulated alone, may hide beside others.
constexpr double kHiddenAtMost = 0.03;  // of the step
constexpr int kMostRepairs = 3;         // prices of a plan, each with more recomputed
/// Largest step, over the best plan's, of plans that use memory that is left.
constexpr double kWorthUsing = 1.05;
constexpr int kMostShares = 3;  // shares of states tried for a plan
/// Least gain of a plan that lacks memory, for which the search runs again with less.
constexpr double kWorthPlanningAgain = 0.02;

}  // namespace

std::vector<TakenPlan> fastest_first(std::vector<TakenPlan> plans) {
  std::stable_sort(plans.begin(), plans.end(),
                   [](const TakenPlan& a, const TakenPlan& b) { return a.step < b.step; });
  return plans;
}

Result<void> StagePricing::consider(const PricedStagePlan& found) {
  if (is_hopeless(found)) return {};
  return costs_.assumption().shares_states ? share_states(found) : fit(found);
}

/// Returns whether the plan will take longer than the best one, even if collectives are hidden in
/// part.
bool StagePricing::is_hopeless(const PricedStagePlan& found) const {
  if (!outcome_.plan) return false;
  double all = 0, shared = 0;  // devices
  for (const StageReplica& replica : found.plan.replicas)
    for (const PlannedStage& stage : replica.stages) {
      const int degree = costs_.units()[stage.unit].degree();
      all += degree;
      if (degree > 1) shared += degree;
    }
  return found.price.step >= outcome_.predicted_step * (1 + kHiddenAtMost * shared / all);
}

/// Returns whether some device alone is busy for longer than the best plan's step.
bool StagePricing::is_hopeless(const PricedStagePlan& found, Again& again) const {
  if (!outcome_.plan) return false;
  const std::vector<double> busy = find_busy(costs_, found, again);
  return *std::max_element(busy.begin(), busy.end()) >=
         outcome_.predicted_step.value * (1 + kHiddenAtMost);
}

Result<void> StagePricing::fit(const PricedStagePlan& found) {
  Again again = translation_.nothing_again(found.plan);
  Lacking lacking;  // without recomputation
  double step = found.price.step.value;
  const bool may_fit = repair_.save_by_layers(found, lacking, again);
  if (!lacking.empty()) MOTLEY_RETURN_IF_ERROR(share_states(found));
  const bool is_vain = !may_fit || (!lacking.empty() && is_hopeless(found, again));
  for (int tried = 0; !is_vain && tried <= kMostRepairs; ++tried) {
    const plan::Plan apart = translation_.translate(found, again);
    plan::Plan plan = translation_.give_tied(apart);
    if (is_seen(plan)) return {};
    MOTLEY_ASSIGN(const std::optional<plan::Price> price, this->price(plan, apart));
    if (!price) return {};
    ++outcome_.considered;
    repair_.learn(found, *price, again);
    const Lacking missing = find_lacking(problem_, plan, *price);
    if (missing.empty()) {
      MOTLEY_RETURN_IF_ERROR(take_priced({found, plan, price->step}, apart, *price));
      return use_left(found, *price, again);
    }
    if (lacking.empty()) {
      step = price->step.value;
      lacking = missing;
      MOTLEY_RETURN_IF_ERROR(share_states(found));
    }
    if (outcome_.plan && price->step >= outcome_.predicted_step) break;
    if (!repair_.save(found, missing, again)) break;
  }
  give_up(found, lacking, step);
  return {};
}

/// Of the plan, or of the one apart if that alone can be lowered; none if neither can, as not every
/// graph can be cut into micro-batches, nor what is split so for each number of them.
Result<std::optional<plan::Price>> StagePricing::price(plan::Plan& plan, const plan::Plan& apart) {
  auto price = inputs_.evaluator->price(plan);
  if (!price && plan != apart) price = inputs_.evaluator->price(plan = apart);
  if (price) return *std::move(price);
  const Error& error = price.error();
  if (error.code != "synth.accumulation" && error.code != "synth.unsupported" &&
      error.code != "plan.stale")
    return tl::make_unexpected(error);
  // The same for another number of micro-batches: reporting it once is enough.
  if (refused_codes_.insert(error.code).second) refused_.insert("no stages: " + error.message);
  return std::nullopt;
}

bool StagePricing::is_seen(const plan::Plan& plan) {
  if (std::find(seen_.begin(), seen_.end(), plan) != seen_.end()) return true;
  seen_.push_back(plan);
  return false;
}

/// Lets the next search use less memory. Interleaved plans do not count, so that they never change
/// what is found without them.
void StagePricing::give_up(const PricedStagePlan& found, const Lacking& lacking, double step) {
  if (is_interleaved(found.plan) && problem_.stages.empty()) return;
  if (!problem_.stages.empty())
    for (const auto& [device, bytes] : lacking)
      refused_.insert(fmt::format("{} has {} too little memory for its stage",
                                  problem_.cluster->device(device).name, format_bytes(bytes)));
  const double known = outcome_.plan ? outcome_.predicted_step.value : INFINITY;
  repair_.note(found.plan, lacking, step < known * (1 - kWorthPlanningAgain));
}

/// Shares states by memory first, then by the memory that is left.
Result<void> StagePricing::share_states(const PricedStagePlan& found) {
  plan::Plan plan =
      translation_.give_tied(translation_.translate(found, translation_.nothing_again(found.plan)));
  const int states = plan::count_states(problem_.recipe);
  std::vector<DeviceId> devices;
  for (const plan::Member& member : plan::members(plan)) devices.push_back(member.device);
  if (plan.replicas.size() < 2 || states == 0 || devices.size() > kMostSharing) return {};
  double bytes = 0;  // of all states
  for (const ValueId id : values_with_role(*inputs_.graph, graph::ValueRole::kParameter))
    bytes += states * static_cast<double>(graph::value_bytes(inputs_.graph->value(id), {}));
  std::vector<double> shares;
  for (const DeviceId device : devices) {
    const auto memory = problem_.cluster->device(device).room();
    if (!memory) return {};
    shares.push_back(static_cast<double>(memory->value));
  }
  for (int tried = 0; tried < kMostShares; ++tried) {
    const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
    if (!(all > 0)) return {};
    plan.owners = {{{"*"}, {}}};
    for (std::size_t i = 0; i < devices.size(); ++i)
      plan.owners[0].shares[devices[i]] = std::round(1000 * shares[i] / all) / 1000;
    if (is_seen(plan)) return {};
    const auto price = inputs_.evaluator->price(plan);
    if (!price) return {};  // as without, which says why
    ++outcome_.considered;
    if (find_lacking(problem_, plan, *price).empty()) return take(found, plan, *price);
    if (outcome_.plan && price->step >= outcome_.predicted_step) return {};
    for (std::size_t i = 0; i < devices.size(); ++i) {
      const Bytes left = *problem_.cluster->device(devices[i]).room() - price->peaks[i];
      shares[i] = std::max(0.0, bytes * shares[i] / all + static_cast<double>(left.value));
    }
  }
  return {};
}

/// Recomputes less where a plan that fits leaves much memory.
Result<void> StagePricing::use_left(const PricedStagePlan& found, plan::Price price, Again& again) {
  if (!problem_.stages.empty()) return {};  // given stages state what is recomputed
  for (int tried = 0; tried < kMostRepairs; ++tried) {
    if (price.step > outcome_.predicted_step * kWorthUsing) return {};
    const std::vector<double> before = find_busy(costs_, found, again);
    if (!repair_.use_left(found, price, again)) return {};
    // The step gains at most what the busiest of the changed devices saves.
    const std::vector<double> after = find_busy(costs_, found, again);
    double gain = 0;
    for (std::size_t seat = 0; seat < after.size(); ++seat)
      gain = std::max(gain, before[seat] - after[seat]);
    if (price.step.value - gain >= outcome_.predicted_step.value) return {};
    const plan::Plan apart = translation_.translate(found, again);
    const plan::Plan plan = translation_.give_tied(apart);
    auto other = inputs_.evaluator->price(plan);
    if (!other || !find_lacking(problem_, plan, *other).empty()) return {};
    ++outcome_.considered;
    price = *std::move(other);
    MOTLEY_RETURN_IF_ERROR(take_priced({found, plan, price.step}, apart, price));
  }
  return {};
}

Result<void> StagePricing::take_if_faster(const TakenPlan& changed, bool is_counted) {
  if (is_counted && is_seen(changed.plan)) return {};
  const auto price = inputs_.evaluator->price(changed.plan);
  if (!price || price->step >= outcome_.predicted_step ||
      !find_lacking(problem_, changed.plan, *price).empty())
    return {};
  outcome_.considered += is_counted ? 1 : 0;
  return take(changed.found, changed.plan, *price);
}

void StagePricing::forget_taken() {
  taken_.clear();
  apart_.reset();
}

Result<void> StagePricing::take_priced(const TakenPlan& plan, const plan::Plan& apart,
                                       const plan::Price& price) {
  MOTLEY_RETURN_IF_ERROR(take(plan.found, plan.plan, price));
  if (outcome_.plan == plan.plan) apart_ = {plan.found, apart, plan.step};
  return {};
}

Result<void> StagePricing::take(const PricedStagePlan& found, const plan::Plan& plan,
                                const plan::Price& price) {
  taken_.push_back({found, plan, price.step});
  outcome_.alternatives.push_back({plan, price.step});
  if (outcome_.plan && price.step >= outcome_.predicted_step) {
    if (plan::has_stages(*outcome_.plan) && plan != *outcome_.plan)
      outcome_.runner_ups.push_back({shape_text(plan), price.step});
    return {};
  }
  outcome_.lower_bound = std::min(outcome_.lower_bound, price.step);
  if (outcome_.plan && plan::has_stages(*outcome_.plan))
    outcome_.runner_ups.insert(outcome_.runner_ups.begin(),
                               {shape_text(*outcome_.plan), outcome_.predicted_step});
  MOTLEY_RETURN_IF_ERROR(take_better(problem_, plan, price, {}, outcome_));
  outcome_.stage_names = translation_.name_stages(found.plan);
  is_best_ = true;
  return {};
}

}  // namespace motley::search
