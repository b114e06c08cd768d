#include "motley/search/stages/passes/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "motley/search/stages/passes/mix.h"
#include "motley/search/stages/single_search.h"

namespace motley::search {
namespace {

/// Runner-ups that programs are made of: without, and with interleaved stages.
constexpr std::size_t kRunnerUps = 4, kTurnedUps = 3;

/// Of plans by rising step.
void add_runner_ups(std::vector<PricedStagePlan> priced, StageOutcome& outcome) {
  std::vector<std::size_t> all;
  for (const auto& [further, interleaved] :
       {std::pair(false, false), {false, true}, {true, false}, {true, true}}) {
    std::set<int> depths;
    std::vector<std::size_t> chosen, others;
    for (std::size_t i = 0; i < priced.size(); ++i)
      if (priced[i].is_further == further && is_interleaved(priced[i].plan) == interleaved)
        (depths.insert(depth_class(priced[i].plan)).second ? chosen : others).push_back(i);
    chosen.insert(chosen.end(), others.begin(), others.end());
    const std::size_t most = interleaved ? kTurnedUps : kRunnerUps + 1;
    if (chosen.size() > most) chosen.resize(most);
    all.insert(all.end(), chosen.begin(), chosen.end());
  }
  std::sort(all.begin(), all.end());
  for (const std::size_t i : all)
    if (i > 0) outcome.runner_ups.push_back(std::move(priced[i]));
}

}  // namespace

void explain_infeasible(const SearchSpace& space, StageOutcome& outcome) {
  const StageCosts& costs = space.costs;
  for (std::size_t u = 0; u < costs.units().size(); ++u) {
    const StageUnit& unit = costs.units()[u];
    const double memory = static_cast<double>(space.sums.memory(u).value);
    std::int64_t largest = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < costs.layers(); ++i) {
      const std::int64_t bytes =
          space.sums.bytes(u, i, i + 1).total(costs.micro_batches().front(), 1);
      if (bytes > largest) largest = bytes, at = i;
    }
    if (static_cast<double>(largest) > memory)
      outcome.why.push_back(
          fmt::format("layer {} alone needs {:.1f} GB on {} at degree {}, which has {:.1f} GB", at,
                      static_cast<double>(largest) * 1e-9, kinds_text(unit, costs), unit.degree(),
                      memory * 1e-9));
  }
  outcome.why.push_back("no replica fits: in no cut into stages does every stage fit a device");
}

void choose_plans(const SearchSpace& space, std::vector<PricedStagePlan> priced, Seconds least,
                  Ruled ruled, StageOutcome& outcome) {
  std::stable_sort(priced.begin(), priced.end(),
                   [](const auto& a, const auto& b) { return a.price.step < b.price.step; });
  const auto first =
      std::find_if(priced.begin(), priced.end(), [](const auto& each) { return !each.is_further; });
  if (first != priced.end() && priced.front().price.step >= kWorthFurther * first->price.step)
    std::erase_if(priced, [](const auto& each) { return each.is_further; });
  outcome.best = priced.front();
  bool is_optimal = ruled == Ruled::kAllApart;
  if (space.can_interleave()) {
    outcome.apart_bound = outcome.lower_bound;
    outcome.lower_bound = least;
    if (is_optimal)
      outcome.why.push_back(
          "all other plans whose devices have one stage each were ruled out, of interleaved ones "
          "some were tried");
    is_optimal = false;
  }
  outcome.lower_bound = std::min(outcome.lower_bound, outcome.best->price.step);
  if (!space.question.is_bounded) outcome.lower_bound = std::min(outcome.lower_bound, least);
  is_optimal = is_optimal || outcome.gap() <= kOptimalGap;
  outcome.reason = is_optimal ? StageReason::kOptimal : StageReason::kFeasible;
  add_runner_ups(std::move(priced), outcome);
}

}  // namespace motley::search
