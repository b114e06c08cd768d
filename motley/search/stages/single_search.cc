#include "motley/search/stages/single_search.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

#include "motley/search/stages/passes/generators.h"
#include "motley/search/stages/passes/improvers.h"
#include "motley/search/stages/passes/outcome.h"
#include "motley/search/stages/passes/pricing.h"

namespace motley::search {
namespace {

/// Mixes that are tuned and simulated whole: of the fastest, of those of few replicas, and, of few
/// devices, twice as many.
constexpr std::size_t kMostPriced = 8;
/// Times the fastest plan so far, beyond which the expected step of a mix is not worth a
/// simulation: of any mix; of few replicas, whose estimate does not know which of their stages
/// share a host; of a depth that no plan has.
constexpr double kTooSlow = 1.03, kTooSlowFew = 1.25, kTooSlowDepth = 1.3;

class StageSearch {
 public:
  StageSearch(const SearchSpace& space, const BoundedTime& bound,
              const std::vector<ReplicaShape>& shapes, StageOutcome outcome)
      : space_(space),
        bound_(bound),
        shapes_(shapes),
        estimates_(space, bound.lower_bound),
        fastest_(space.question.known.value_or(Seconds(INFINITY))),
        outcome_(std::move(outcome)) {}

  Result<StageOutcome> run(Seconds least) {
    const bool is_possible = bound_.bracket.possible < kTooLong;
    if (is_possible) MOTLEY_RETURN_IF_ERROR(add_plans(kGenerators));
    improve(0);
    if (is_possible && has_second_round()) {
      const std::size_t known = priced_.size();
      MOTLEY_RETURN_IF_ERROR(add_plans(kSecondGenerators));
      improve(known);
      for (std::size_t i = known; i < priced_.size(); ++i) priced_[i].is_further = true;
    }
    if (!priced_.empty())
      choose_plans(space_, std::move(priced_), least, ruled_, outcome_);
    else if (is_possible)
      outcome_.why.push_back("no combination of replicas could be placed in the hosts");
    else
      outcome_.why.push_back(
          "no plan of stages was found: of some layers no times are known, or devices cannot reach "
          "each other");
    return std::move(outcome_);
  }

 private:
  /// Beside what is known, and in zones, there are other searches.
  bool has_second_round() const {
    return space_.classes.size() > 1 && !space_.has_few_devices() && !space_.question.known &&
           space_.question.limits.stretches.empty();
  }

  Result<void> add_plans(std::span<const Generator> generators) {
    for (const Generator& each : generators) {
      if (!space_.runs(each.name)) continue;
      MOTLEY_ASSIGN(GeneratedMixes made,
                    each.generate({space_, estimates_, bound_.bracket, shapes_, mixes_, ranked_}));
      mixes_.insert(mixes_.end(), made.mixes.begin(), made.mixes.end());
      turned_.insert(turned_.end(), made.turned.begin(), made.turned.end());
      outcome_.programs += made.programs;
    }
    MOTLEY_RETURN_IF_ERROR(rank());
    for (const MixImprover& each : kMixImprovers)
      if (space_.runs(each.name) && !space_.has_few_devices())
        MOTLEY_RETURN_IF_ERROR(each.improve(space_, estimates_, ranked_));
    price();
    return {};
  }

  /// By what whole steps are expected to take, once all shapes are learned.
  Result<void> rank() {
    for (ReplicaMix& mix : std::exchange(mixes_, {})) {
      const double seconds = estimates_.seconds_of(mix);
      for (const auto& [shape, count] : mix.parts)
        MOTLEY_RETURN_IF_ERROR(estimates_.learn(shape, seconds));
      const double expected = estimates_.expected_step(mix);
      if (expected < kTooLong)
        ranked_.push_back({expected, std::move(mix)});
      else if (is_one_replica(mix) && mix.parts.front().first.stages.size() > 1)
        turned_.push_back(mix.parts.front().first);
    }
    sort_mixes(ranked_);
    return {};
  }

  void price() {
    std::set<int> depths;  // that were priced
    std::size_t few = 0;
    const bool has_few_devices = space_.has_few_devices();
    for (std::size_t i = 0; i < ranked_.size(); ++i) {
      const RankedMix& ranked = ranked_[i];
      const bool is_few = has_few_replicas(ranked.mix);
      const bool is_new = !depths.contains(depth_class(ranked.mix));
      const auto is_within = [&](double times) { return ranked.seconds <= times * fastest_.value; };
      const bool is_worth = has_few_devices
                                ? is_new || i < 2 * kMostPriced
                                : std::isinf(fastest_.value) ||
                                      (i < kMostPriced && is_within(kTooSlow)) ||
                                      (is_few && few < kMostPriced && is_within(kTooSlowFew)) ||
                                      (is_new && is_within(kTooSlowDepth));
      if (!is_worth) continue;
      if (has_few_devices || timed_.insert(ranked.mix).second) price(ranked);
      depths.insert(depth_class(ranked.mix));
      few += is_few ? 1 : 0;
    }
  }

  /// Not more than the devices of a host.
  bool has_few_replicas(const ReplicaMix& mix) const {
    int replicas = 0;
    for (const auto& [shape, count] : mix.parts) replicas += count;
    return replicas <= space_.classes.front().most;
  }

  void price(const RankedMix& ranked) {
    const bool moves = space_.runs("layers");
    bool is_priced = price(ranked.mix, moves ? LayerMoves::kTried : LayerMoves::kLeft);
    if (is_priced && ranked.is_refined && moves) is_priced = price(ranked.mix, LayerMoves::kLeft);
    if (!is_priced || !space_.has_few_devices() || !space_.runs("micro-batches")) return;
    ReplicaMix other = choose_micro_batches(space_, estimates_, ranked.mix);
    if (other != ranked.mix) price(std::move(other), LayerMoves::kTried);
  }

  /// False, and said why: a link is missing.
  bool price(ReplicaMix mix, LayerMoves moves) {
    auto priced = price_mix(space_, estimates_, std::move(mix), moves, fastest_);
    if (!priced) {
      const std::string& message = priced.error().message;
      if (std::find(outcome_.why.begin(), outcome_.why.end(), message) == outcome_.why.end())
        outcome_.why.push_back(message);
      return false;
    }
    outcome_.simulated += priced->simulated;
    if (priced->best) {
      fastest_ = std::min(fastest_, priced->best->price.step);
      priced_.push_back(*std::move(priced->best));
    }
    return true;
  }

  /// By plans that no improver has seen from `first` on.
  void improve(std::size_t first) {
    for (const PlanImprover& each : kPlanImprovers) {
      if (!space_.runs(each.name)) continue;
      ImprovedPlans made = each.improve({space_, estimates_, priced_, first, turned_});
      for (PricedStagePlan& plan : made.plans) priced_.push_back(std::move(plan));
      outcome_.simulated += made.simulated;
      outcome_.lower_bound = std::max(outcome_.lower_bound, made.lower_bound);
      if (made.is_proved) ruled_ = Ruled::kAllApart;
    }
  }

  const SearchSpace& space_;
  const BoundedTime& bound_;
  const std::vector<ReplicaShape>& shapes_;
  ShapeEstimates estimates_;
  std::vector<ReplicaMix> mixes_;  // that are not ranked yet
  RankedMixes ranked_;
  std::set<ReplicaMix> timed_;        // of them, those that were simulated
  std::vector<ReplicaShape> turned_;  // of one replica, that may be good interleaved
  std::vector<PricedStagePlan> priced_;
  Seconds fastest_;  // of the priced mixes, and of what is known
  Ruled ruled_ = Ruled::kSome;
  StageOutcome outcome_;
};

}  // namespace

Result<StageOutcome> search_once(const StageQuestion& question) {
  const SearchSpace space(question);
  StageOutcome outcome{.why = space.costs.notes()};
  if (!space.has_shape()) {
    explain_infeasible(space, outcome);
    return outcome;
  }
  const Seconds least(rate_bound(space.sums, question.global_batch) * (1 - 1e-9));
  ShapeColumns columns;
  const BoundedTime bound = bound_time(space, least.value, columns);
  outcome.lower_bound = Seconds(bound.lower_bound);
  outcome.programs = bound.programs;
  outcome.shapes = static_cast<std::int64_t>(columns.shapes().size());
  return StageSearch(space, bound, columns.shapes(), std::move(outcome)).run(least);
}

std::vector<std::string_view> stage_passes() {
  // Beside those of the tables: columns of short pipelines, and what a generator or the pricing of
  // a mix leaves out.
  std::vector<std::string_view> names = {"shorter"};
  for (const Generator& each : kGenerators) names.push_back(each.name);
  for (const Generator& each : kSecondGenerators) names.push_back(each.name);
  for (const MixImprover& each : kMixImprovers) names.push_back(each.name);
  for (const std::string_view inner : {"bundles", "layers", "places", "micro-batches"})
    names.push_back(inner);
  for (const PlanImprover& each : kPlanImprovers) names.push_back(each.name);
  return names;
}

}  // namespace motley::search
