#include "motley/search/stages/stage_search.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/search/stages/costs/merged_layers.h"
#include "motley/search/stages/moved_cuts.h"
#include "motley/search/stages/shapes/sample_bound.h"
#include "motley/search/stages/shapes/zones.h"
#include "motley/search/stages/single_search.h"

namespace motley::search {
namespace {

constexpr std::size_t kLargestSpace = 1000;  // layers x units of the exact search
constexpr std::size_t kMostGroups = 24;      // of layers, beyond
constexpr std::size_t kMostUnits = 16;       // of replicas across pools, beyond
constexpr double kTooSlowCuts = 1.15;        // of which cuts are moved
constexpr double kWellKnown = 1.25;          // times a step beyond which others are not looked for

/// After moves the best need not be the same.
void put_best_first(StageOutcome& outcome) {
  std::vector<PricedStagePlan>& others = outcome.runner_ups;
  others.insert(others.begin(), *std::move(outcome.best));
  std::stable_sort(others.begin(), others.end(),
                   [](const auto& a, const auto& b) { return a.price.step < b.price.step; });
  outcome.best = std::move(others.front());
  others.erase(others.begin());
}

/// Of the best plan.
void judge(StageOutcome& outcome) {
  outcome.lower_bound = std::min(outcome.lower_bound, outcome.best->price.step);
  outcome.reason = outcome.gap() <= kOptimalGap ? StageReason::kOptimal : StageReason::kFeasible;
}

/// Plans of which each zone has a stretch of the layers; absent: there is one zone, or none fits.
Result<std::optional<StageOutcome>> find_by_zones(const StageQuestion& question) {
  StageQuestion zoned = question;
  const auto stretches = find_zone_stretches(*question.costs);
  if (!stretches) return std::nullopt;
  zoned.limits.stretches = *stretches;
  // A replica of one kind goes through all zones.
  if (zoned.limits.mix == UnitMix::kOnePool) zoned.limits.mix = UnitMix::kOneKind;
  zoned.is_bounded = false;
  MOTLEY_ASSIGN(StageOutcome outcome, search_once(zoned));
  if (!outcome.best) return std::nullopt;
  return outcome;
}

/// Plans of a further search of the same costs, where they are worth it; the bound stays.
void add_plans(StageOutcome from, StageOutcome& to) {
  if (to.best && from.best->price.step >= kWorthFurther * to.best->price.step) return;
  from.runner_ups.push_back(*std::move(from.best));
  for (PricedStagePlan& each : from.runner_ups) {
    each.is_further = true;
    to.runner_ups.push_back(std::move(each));
  }
  if (!to.best) {
    to.best = std::move(to.runner_ups.back());
    to.runner_ups.pop_back();
    to.why.pop_back();  // that there is none
  }
  to.programs += from.programs;
  to.shapes += from.shapes;
  to.simulated += from.simulated;
  put_best_first(to);
}

/// Where the space is too large for exact programs: layers in groups, replicas within one pool
/// each.
Result<StageOutcome> find_in_narrowed(const StageQuestion& question) {
  const StageCosts& costs = *question.costs;
  const std::size_t groups = std::min(costs.layers(), kMostGroups);
  const MergedLayers merged = MergedLayers::balanced(costs, groups);
  StageQuestion narrowed = question;
  narrowed.costs = &merged;
  if (costs.units().size() > kMostUnits) narrowed.limits.mix = UnitMix::kOnePool;
  MOTLEY_ASSIGN(std::optional<StageOutcome> zoned, find_by_zones(narrowed));
  if (zoned) narrowed.known = kWellKnown * zoned->best->price.step;
  MOTLEY_ASSIGN(StageOutcome outcome, search_once(narrowed));
  if (zoned) add_plans(*std::move(zoned), outcome);
  outcome.why.push_back(fmt::format(
      "{} layers on {} units are more than the exact search takes: layers were taken in {} "
      "groups{}, "
      "and the lower bound is of rates alone",
      costs.layers(), costs.units().size(), groups,
      narrowed.limits.mix == UnitMix::kOnePool
          ? ", each replica's stages on devices of one kind and place"
          : ""));
  const StageSums sums(costs);
  const StageEvaluator evaluator(sums);
  const auto restore = [&](PricedStagePlan& priced) -> Result<void> {
    for (StageReplica& replica : priced.plan.replicas)
      for (PlannedStage& stage : replica.stages) {
        stage.first = merged.cut(stage.first);
        stage.end = merged.cut(stage.end);
      }
    MOTLEY_ASSIGN(priced.price, evaluator.price(priced.plan));
    return {};
  };
  outcome.lower_bound = Seconds(rate_bound(sums, question.global_batch) * (1 - 1e-9));
  outcome.apart_bound.reset();
  if (!outcome.best) return outcome;
  MOTLEY_RETURN_IF_ERROR(restore(*outcome.best));
  for (PricedStagePlan& other : outcome.runner_ups) {
    MOTLEY_RETURN_IF_ERROR(restore(other));
  }
  put_best_first(outcome);
  // Cuts lay between groups of layers.
  const Seconds most = kTooSlowCuts * outcome.best->price.step;
  outcome.simulated += move_cuts(evaluator, {}, *outcome.best);
  for (PricedStagePlan& other : outcome.runner_ups)
    if (other.price.step <= most) outcome.simulated += move_cuts(evaluator, {}, other);
  put_best_first(outcome);
  judge(outcome);
  return outcome;
}

}  // namespace

Result<StageOutcome> find_stage_plan(const StageQuestion& question) {
  if (question.global_batch < 1)
    return usage_error("search.stages", fmt::format("a batch of {} samples, wanted 1 or more",
                                                    question.global_batch));
  const StageCosts& costs = *question.costs;
  if (costs.layers() * costs.units().size() > kLargestSpace) return find_in_narrowed(question);
  MOTLEY_ASSIGN(StageOutcome outcome, search_once(question));
  if (outcome.reason == StageReason::kOptimal) return outcome;
  MOTLEY_ASSIGN(std::optional<StageOutcome> zoned, find_by_zones(question));
  if (!zoned) return outcome;
  add_plans(*std::move(zoned), outcome);
  judge(outcome);
  return outcome;
}

}  // namespace motley::search
