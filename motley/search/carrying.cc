#include "motley/search/carrying.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "motley/base/random.h"
#include "motley/base/text.h"
#include "motley/search/spmd/bound.h"
#include "motley/search/spmd/depths.h"
#include "motley/search/spmd/spmd_planner.h"
#include "motley/synth/lower.h"
#include "motley/synth/state/carried.h"

namespace motley::search {
namespace {

/// Numbers that are tried first, at equal distances: the step falls once what nobody waits for is
/// carried, and rises again where the next forward pass waits.
constexpr double kFirst = 8, kPlaces = 4;
/// Of one exchange: a tensor of which this much waits is worth cutting no finer.
constexpr double kLeastPart = 1.0 / 16;
/// How often number and place are improved by turns.
constexpr int kImprovements = 2;

/// Prices one plan with several exchanges carried.
class CarriedPrices {
 public:
  CarriedPrices(const PlannerInputs& inputs, const plan::Problem& problem, plan::Plan plan)
      : inputs_(inputs), problem_(problem), plan_(std::move(plan)) {}

  /// Returns the price; none if the plan does not fit then.
  Result<std::optional<plan::Price>> price(const plan::Carried& carried) {
    plan_.carried = carried;
    ++count_;
    MOTLEY_ASSIGN(const plan::Price price, inputs_.evaluator->price(plan_));
    const std::vector<plan::Member> members = plan::members(plan_);
    for (std::size_t rank = 0; rank < members.size(); ++rank) {
      const auto room = problem_.cluster->device(members[rank].device).room();
      if (room && price.peaks[rank] > *room) return std::optional<plan::Price>();
    }
    return std::optional(price);
  }

  /// Finds what to carry of the `most` exchanges that can be. The first layers' come last and are
  /// needed first, the last layers' would fill the lane first: those between may gain most.
  Result<void> search(double most) {
    MOTLEY_ASSIGN(const auto without, price({}));
    if (!without) return {};
    least_ = without->step;
    const double first = std::max(1.0, std::ceil(most / kFirst));
    for (double skipped = 0; skipped < most; skipped += std::ceil(most / kPlaces))
      for (double each = most - skipped; each > 0; each -= first)
        MOTLEY_RETURN_IF_ERROR(consider({each, static_cast<std::int64_t>(skipped)}));
    if (best_.exchanges == 0) return {};
    for (int round = 0; round < kImprovements; ++round) {
      const auto skipped = static_cast<double>(best_.skipped);
      for (double by = first; by > kLeastPart; by = by > 1 ? std::ceil(by / 2) : by / 2)
        for (const double step : {-by, by})
          MOTLEY_RETURN_IF_ERROR(
              consider({std::min(best_.exchanges + step, most - skipped), best_.skipped}));
      for (double by = first; by >= 1; by = by > 1 ? std::ceil(by / 2) : 0)
        for (const double step : {-by, by})
          MOTLEY_RETURN_IF_ERROR(
              consider({best_.exchanges, best_.skipped + static_cast<std::int64_t>(step)}));
    }
    return {};
  }

  const plan::Carried& best() const { return best_; }
  std::int64_t count() const { return count_; }

 private:
  Result<void> consider(const plan::Carried& carried) {
    if (carried.exchanges <= 0 || carried.skipped < 0) return {};
    MOTLEY_ASSIGN(const auto found, price(carried));
    if (found && found->step < least_) std::tie(least_, best_) = std::tie(found->step, carried);
    return {};
  }

  const PlannerInputs& inputs_;
  const plan::Problem& problem_;
  plan::Plan plan_;
  plan::Carried best_;
  Seconds least_{0};
  std::int64_t count_ = 0;
};

/// Of every second plan some, of these every second with a part of an exchange.
plan::Carried draw(std::int64_t most, std::uint64_t seed) {
  SplitMix64 random(seed);
  if (most == 0 || random.below(2) == 0) return {};
  const auto skipped = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)));
  const auto exchanges = 1 + random.below(static_cast<std::uint64_t>(most - skipped));
  const double part = random.below(2) == 0 ? 0 : 0.5;
  return {static_cast<double>(exchanges) - part, skipped};
}

/// `bound`: of steps that end with their exchanges; 0: unknown. That of stages, which counts work
/// alone, is no less, so the least of both bounds all plans.
Result<Seconds> find_bound(const PlannerInputs& inputs, const plan::Problem& problem, Seconds step,
                           Seconds bound) {
  if (bound.value <= 0 || !may_shard(problem, inputs)) return Seconds(0);
  SpmdQuestion question = spmd_question(inputs, problem);
  question.carries = true;
  question.enough_bound = bound;
  question.depths = find_depths(*inputs.graph);
  MOTLEY_ASSIGN(SpmdStudy study, SpmdStudy::make(question));
  return std::min(bound, spmd_lower_bound(study, step));
}

}  // namespace

Result<plan::PlanOutcome> Carrying::plan(const plan::Problem& given) const {
  plan::Problem problem = given;
  for (plan::KnownPlan& each : problem.known) each.plan.carried = {};
  MOTLEY_ASSIGN(plan::PlanOutcome outcome, planner_->plan(problem));
  if (!outcome.plan || plan::members(*outcome.plan).size() == 1) return outcome;
  if (problem.recipe.needs_factor()) {
    outcome.why.push_back(
        "no exchange is carried into the next step: a gradient limit or loss scale needs all "
        "gradients before the first update");
    return outcome;
  }
  const Seconds without = outcome.predicted_step;
  CarriedPrices prices(inputs_, problem, *outcome.plan);
  plan::Plan plan = *outcome.plan;
  const bool is_drawn = name() == "random";
  if (wanted_) {
    plan.carried = *wanted_;
  } else {
    const auto program = synth::lower(*inputs_.graph, plan, *problem.cluster);
    if (!program || without.value == 0) return outcome;  // a plan without a price
    const std::int64_t most = synth::count_carriable(*program);
    if (is_drawn) {
      plan.carried = draw(most, problem.seed);
    } else {
      MOTLEY_RETURN_IF_ERROR(prices.search(static_cast<double>(most)));
      plan.carried = prices.best();
    }
  }
  if (plan.carried.exchanges == 0) return outcome;
  MOTLEY_ASSIGN(const auto price, prices.price(plan.carried));
  outcome.considered += prices.count();
  const bool is_worse = !price || price->step.value > without.value * (1 - kLeastGain);
  if (!wanted_ && !is_drawn && is_worse) return outcome;
  if (!price && is_drawn) return outcome;
  if (!price)
    return usage_error("search.carry",
                       "--carry: the plan does not fit when it keeps gradients of "
                       "a step into the next one; leave it out");
  std::vector<std::string> why = outcome.why;
  const auto& [exchanges, skipped] = plan.carried;
  why.insert(why.begin(),
             fmt::format("{:.4g} exchanges of a step{} end in the next one{}: a step takes {}, {} "
                         "otherwise",
                         exchanges, skipped == 0 ? "" : fmt::format(", behind them {},", skipped),
                         wanted_    ? ", as asked for"
                         : is_drawn ? ", as drawn"
                                    : "",
                         format_seconds(price->step), format_seconds(without)));
  if (wanted_ || is_drawn) outcome.plan.reset();
  MOTLEY_ASSIGN(outcome.lower_bound,
                find_bound(inputs_, problem, price->step, outcome.lower_bound));
  MOTLEY_RETURN_IF_ERROR(take_better(problem, plan, *price, std::move(why), outcome));
  return outcome;
}

}  // namespace motley::search
