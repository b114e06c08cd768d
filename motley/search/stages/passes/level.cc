#include <algorithm>
#include <set>

#include "motley/search/stages/passes/improvers.h"

namespace motley::search {
namespace {

/// Micro-batches through stages that are simulated for it: about a fifth of a second.
constexpr std::int64_t kLeveledPasses = 200'000;

/// Gives samples from a replica to another; false: the plan is not faster by it.
bool give(const SearchSpace& space, PricedStagePlan& plan, std::size_t from, std::size_t to,
          std::int64_t& left, ImprovedPlans& made) {
  for (const std::int64_t amount :
       std::set<std::int64_t>{1, plan.plan.replicas[from].micro_batch}) {
    StagePlan tried = plan.plan;
    tried.replicas[from].samples -= amount;
    tried.replicas[to].samples += amount;
    if (!has_full_ends(tried.replicas[from]) || !has_full_ends(tried.replicas[to])) continue;
    left -= count_passes(tried);
    if (left < 0) return false;
    ++made.simulated;
    auto price = space.evaluator.price(tried);
    if (!price || !price->fits || price->step >= plan.price.step) continue;
    plan = {std::move(tried), *std::move(price)};
    return true;
  }
  return false;
}

}  // namespace

ImprovedPlans level_samples(const ImproverInput& input) {
  ImprovedPlans made;
  if (input.plans.empty() || input.space.question.equal_samples) return made;
  const auto best = std::min_element(input.plans.begin(), input.plans.end(),
                                     [](auto& a, auto& b) { return a.price.step < b.price.step; });
  PricedStagePlan now = *best;
  std::int64_t left = kLeveledPasses;
  for (bool has_moved = now.plan.replicas.size() > 1; has_moved;) {
    std::size_t last = 0, first = 0;
    for (std::size_t r = 0; r < now.plan.replicas.size(); ++r) {
      const auto ends = [&](std::size_t of) { return now.price.spans[of].front().last; };
      if (ends(r) > ends(last)) last = r;
      if (ends(r) < ends(first)) first = r;
    }
    has_moved = give(input.space, now, last, first, left, made);
  }
  if (now.price.step < best->price.step) made.plans.push_back(std::move(now));
  return made;
}

}  // namespace motley::search
