#include <algorithm>
#include <numeric>

#include "motley/search/stages/passes/improvers.h"
#include "motley/search/stages/plan_moves.h"

namespace motley::search {
namespace {

constexpr std::size_t kImproved = 8;  // plans from which moves are made
/// Micro-batches through stages that are simulated for it in all: about half a second.
constexpr std::int64_t kMovedPasses = 400'000;
constexpr double kSmallestGain = 1e-6;  // of the step, that is an improvement: more than rounding

/// To the first plan one move away that is faster; false: there is none.
bool make_move(const SearchSpace& space, PricedStagePlan& plan, std::int64_t& left,
               ImprovedPlans& made) {
  for (MovedPlan& moved : find_moves(plan.plan, space.costs)) {
    if (left <= 0) return false;
    if (!place_stages(moved.plan, space.costs, StagePlacing::kByStage)) continue;
    left -= (1 + static_cast<std::int64_t>(std::size(kTriedSchedules))) * count_passes(moved.plan);
    const bool is_known =
        std::all_of(moved.changed.begin(), moved.changed.end(), [&](std::size_t r) {
          return space.evaluator.choose_schedule(moved.plan.replicas[r]).has_value();
        });
    if (!is_known) continue;
    ++made.simulated;
    auto price = space.evaluator.price(moved.plan);
    if (!price || !price->fits || price->step >= plan.price.step * (1 - kSmallestGain)) continue;
    plan = {std::move(moved.plan), *std::move(price)};
    return true;
  }
  return false;
}

}  // namespace

ImprovedPlans make_moves(const ImproverInput& input) {
  ImprovedPlans made;
  if (!input.space.has_few_devices() || input.space.question.equal_samples) return made;
  const std::vector<PricedStagePlan>& plans = input.plans;
  std::vector<std::size_t> order(plans.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return plans[a].price.step < plans[b].price.step;
  });
  std::int64_t left = kMovedPasses;
  for (std::size_t i = 0; i < std::min(order.size(), kImproved); ++i) {
    PricedStagePlan now = plans[order[i]];
    while (left > 0 && make_move(input.space, now, left, made)) continue;
    const auto is_same = [&](const PricedStagePlan& known) { return known.plan == now.plan; };
    if (std::none_of(plans.begin(), plans.end(), is_same) &&
        std::none_of(made.plans.begin(), made.plans.end(), is_same))
      made.plans.push_back(std::move(now));
  }
  return made;
}

}  // namespace motley::search
