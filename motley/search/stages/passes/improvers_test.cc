#include "motley/search/stages/passes/improvers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

RankedMix ranked(const ShapeEstimates& estimates, ReplicaMix mix) {
  const double seconds = estimates.expected_step(mix);
  return {seconds, std::move(mix)};
}

/// The only plan that is known, in places and priced.
std::vector<PricedStagePlan> priced(const SearchSpace& space, StagePlan plan) {
  EXPECT_TRUE(place_stages(plan, space.costs, StagePlacing::kByStage));
  auto price = space.evaluator.price(plan);
  EXPECT_TRUE(price && price->fits);
  return {{std::move(plan), *std::move(price)}};
}

// Six equal layers on two equal devices: each pipeline is fastest with three on each.
TEST(RefineCuts, EvensOutStages) {
  const TableStageCosts costs = even_stage_costs(6, 1, 4);
  const StageQuestion question{&costs, 24};
  const SearchSpace space(question);
  ShapeEstimates estimates(space, 1);
  RankedMixes mixes = {ranked(estimates, {{{{{{0, 1, 0}, {1, 6, 0}}, 1}, 2}}})};
  const double before = mixes.front().seconds;
  ASSERT_TRUE(refine_cuts(space, estimates, mixes));
  EXPECT_TRUE(mixes.front().is_refined);
  EXPECT_LT(mixes.front().seconds, before);
  EXPECT_EQ(mixes.front().mix.parts.front().first.stages.front().end, 3u);
}

// Of four devices two were used.
TEST(ChangeCounts, UsesIdleDevices) {
  const TableStageCosts costs = even_stage_costs(2, 1, 4);
  const StageQuestion question{&costs, 16};
  const SearchSpace space(question);
  ShapeEstimates estimates(space, 1);
  const ReplicaShape one{{{0, 2, 0}}, 1}, two{{{0, 2, 0}}, 2};
  RankedMixes mixes = {ranked(estimates, {{{one, 1}, {two, 1}}})};
  const double before = mixes.front().seconds;
  ASSERT_TRUE(change_counts(space, estimates, mixes));
  EXPECT_LT(mixes.front().seconds, 0.6 * before);
  int replicas = 0;
  for (const auto& [shape, count] : mixes.front().mix.parts) replicas += count;
  EXPECT_EQ(replicas, 4);
}

// Two equal devices with 9 and 3 samples of 6 s.
TEST(LevelSamples, LeavesAsManyToEach) {
  const TableStageCosts costs = even_stage_costs(2, 1, 2);
  const StageQuestion question{&costs, 12};
  const SearchSpace space(question);
  const ShapeEstimates estimates(space, 1);
  const auto plans = priced(space, {{{{{0, 2, 0}}, 1, 9}, {{{0, 2, 0}}, 1, 3}}});
  const ImprovedPlans made = level_samples({space, estimates, plans, 0, {}});
  ASSERT_EQ(made.plans.size(), 1u);
  EXPECT_EQ(made.plans[0].plan.replicas[0].samples, 6);
  EXPECT_EQ(made.plans[0].plan.replicas[1].samples, 6);
  EXPECT_NEAR(made.plans[0].price.step.value, 36, 1e-3);
}

// A sample does not come in two: the faster device does it.
TEST(MakeMoves, TakesTheFasterDevice) {
  const TableStageCosts costs = even_stage_costs(1, 2, 1);
  const StageQuestion question{&costs, 1};
  const SearchSpace space(question);
  const ShapeEstimates estimates(space, 1);
  const auto plans = priced(space, {{{{{0, 1, 1}}, 1, 1}}});
  const ImprovedPlans made = make_moves({space, estimates, plans, 0, {}});
  ASSERT_EQ(made.plans.size(), 1u);
  EXPECT_EQ(made.plans[0].plan.replicas[0].stages[0].unit, 0u);
  EXPECT_NEAR(made.plans[0].price.step.value, 3, 1e-3);
}

// Without a plan the proof finds one.
TEST(ProveBest, FindsAPlanWhereThereIsNone) {
  const TableStageCosts costs = even_stage_costs(2, 2, 1);
  const StageQuestion question{&costs, 2};
  const SearchSpace space(question);
  const ShapeEstimates estimates(space, 1);
  const ImprovedPlans made = prove_best({space, estimates, {}, 0, {}});
  ASSERT_EQ(made.plans.size(), 1u);
  EXPECT_TRUE(made.is_proved);
  EXPECT_LE(made.lower_bound, made.plans[0].price.step);
}

}  // namespace
}  // namespace motley::search
