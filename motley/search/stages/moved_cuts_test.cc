#include "motley/search/stages/moved_cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

StagePlan cut_at(const std::vector<std::size_t>& cuts, int host = 0) {
  StageReplica replica{{}, 1, 6};
  for (std::size_t s = 0; s + 1 < cuts.size(); ++s)
    replica.stages.push_back({cuts[s], cuts[s + 1], s, host, 0});
  return {{replica}};
}

// Compared with all cuts, for different kinds, starting at an extreme cut.
TEST(MovedCuts, AreTheBestOfAll) {
  constexpr std::size_t kLayers = 12;
  const TableStageCosts costs = even_stage_costs(kLayers, 3, 1);
  const StageSums sums(costs);
  const StageEvaluator evaluator(sums);
  const auto price = [&](const StagePlan& plan) {
    return PricedStagePlan{plan, evaluator.price(plan).value()};
  };
  double best = 1e300;
  for (std::size_t a = 1; a + 1 < kLayers; ++a)
    for (std::size_t b = a + 1; b < kLayers; ++b)
      best = std::min(best, price(cut_at({0, a, b, kLayers})).price.step.value);
  PricedStagePlan moved = price(cut_at({0, 1, 2, kLayers}));
  EXPECT_GT(moved.price.step.value, 1.5 * best);
  EXPECT_GT(move_cuts(evaluator, {{4, 2, 1}, 2}, moved), 10);
  EXPECT_DOUBLE_EQ(moved.price.step.value, best);
}

TEST(MovedCuts, NoSingleMoveIsLeft) {
  std::mt19937_64 random(7);
  int moved_some = 0;
  for (int i = 0; i < 60; ++i) {
    const TableStageCosts costs = random_stage_costs(random, 10, 4);
    const StageSums sums(costs);
    const StageEvaluator evaluator(sums);
    StagePlan plan{{{{{0, 5, 0, 0, 0}, {5, 10, costs.all_units.size() - 1, 0, 0}}, 1, 5}}};
    if (plan.replicas[0].stages[1].unit == 0) continue;
    if (costs.all_units[0].pool() == costs.all_units.back().pool()) continue;
    const auto price = evaluator.price(plan);
    if (!price || !price->fits) continue;
    PricedStagePlan moved{plan, *price};
    (void)move_cuts(evaluator, {}, moved);
    moved_some += moved.plan == plan ? 0 : 1;
    EXPECT_LE(moved.price.step, price->step);
    EXPECT_TRUE(moved.price.fits);
    for (const int by : {-1, 1}) {
      StagePlan other = moved.plan;
      if (!move_cut(other.replicas[0].stages, 0, by)) continue;
      const auto next = evaluator.price(other);
      if (next && next->fits) {
        EXPECT_GE(next->step.value, moved.price.step.value * (1 - 1e-4)) << i;
      }
    }
  }
  EXPECT_GT(moved_some, 5);
}

// Moving a cut of one of two replicas alone would not help.
TEST(MovedCuts, ReplicasThatAreCutIdenticalMoveTogether) {
  const TableStageCosts costs = even_stage_costs(8, 2, 2);
  const StageSums sums(costs);
  const StageEvaluator evaluator(sums);
  StagePlan plan = cut_at({0, 1, 8});
  plan.replicas.push_back(cut_at({0, 1, 8}, 1).replicas[0]);
  PricedStagePlan moved{plan, evaluator.price(plan).value()};
  (void)move_cuts(evaluator, {}, moved);
  EXPECT_LT(moved.price.step.value, 0.7 * evaluator.price(plan).value().step.value);
  EXPECT_EQ(moved.plan.replicas[0].stages[0].end, moved.plan.replicas[1].stages[0].end);
}

}  // namespace
}  // namespace motley::search
