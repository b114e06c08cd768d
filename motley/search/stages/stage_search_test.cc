#include "motley/search/stages/stage_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "motley/search/stages/plan_moves.h"
#include "motley/search/stages/shapes/whole_replicas.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two devices of `a` at 6 s per sample, one of `b` at 12 s: 4, 4 and 2 of 10 samples take 24 s.
TEST(FindStagePlan, SharesSamplesBySpeed) {
  TableStageCosts costs = even_stage_costs(2, 2, 2);
  costs.device_pools[1].devices = 1;
  const auto outcome = find_stage_plan({&costs, 10});
  ASSERT_TRUE(outcome && outcome->best);
  EXPECT_NEAR(outcome->best->price.step.value, 24, 1e-3);
  EXPECT_GT(outcome->lower_bound.value, 23.8);
}

// Without a proof the plan is as good, but the bound is only that of rates.
TEST(FindStagePlan, ABoundNeedNotBeProved) {
  TableStageCosts costs = even_stage_costs(6, 2, 5);
  costs.forward[0] = {3, 2, 1, 3, 2, 1};
  const auto bounded = find_stage_plan({.costs = &costs, .global_batch = 12});
  const auto found = find_stage_plan({.costs = &costs, .global_batch = 12, .is_bounded = false});
  ASSERT_TRUE(bounded && found && bounded->best && found->best);
  EXPECT_EQ(found->best->price.step, bounded->best->price.step);
  EXPECT_LE(found->lower_bound, bounded->lower_bound);
  EXPECT_LE(found->programs, bounded->programs);
}

// No plan is timed if none can reach a known step.
TEST(FindStagePlan, WhatIsKnownToBeSlowerIsNotTimed) {
  const TableStageCosts costs = even_stage_costs(6, 2, 12);
  const StageQuestion free{.costs = &costs, .global_batch = 48};
  const auto found = find_stage_plan(free);
  ASSERT_TRUE(found && found->best);
  StageQuestion question = free;
  question.known = 0.5 * found->best->price.step;
  const auto none = find_stage_plan(question);
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->best);
  question.known = 2 * found->best->price.step;
  const auto same = find_stage_plan(question);
  ASSERT_TRUE(same && same->best);
  EXPECT_LE(same->simulated, found->simulated);
}

TEST(FindStagePlan, LeavesOutWhatCannotBeReached) {
  TableStageCosts costs = even_stage_costs(2, 2, 1);
  costs.between = 0;
  costs.inside = 0;
  for (LayerBytes& layer : costs.layer_bytes) layer.gradients = Bytes(1);
  const auto outcome = find_stage_plan({&costs, 7});
  ASSERT_TRUE(outcome) << outcome.error().message;
  ASSERT_TRUE(outcome->best);
  EXPECT_THAT(used_devices(outcome->best->plan, costs), ElementsAre(1, 0));
  EXPECT_NEAR(outcome->best->price.step.value, 42, 1e-3);
}

// A giant layer is the bottleneck; the layers before and after it share a device.
TEST(FindStagePlan, AGiantLayerHasADeviceOfItsOwn) {
  TableStageCosts costs = even_stage_costs(4, 1, 2);
  costs.forward[0] = {1, 10, 1, 1};
  costs.backward[0] = {2, 20, 2, 2};
  costs.layer_bytes.assign(4, {Bytes(300), Bytes(0), Bytes(0), Bytes(0), Bytes(1)});
  const auto outcome = find_stage_plan({&costs, 8});
  ASSERT_TRUE(outcome && outcome->best);
  ASSERT_EQ(outcome->best->plan.replicas.size(), 1u);
  ASSERT_EQ(outcome->best->plan.replicas[0].stages.size(), 3u);
  EXPECT_EQ(outcome->best->plan.replicas[0].stages[1].end, 2u);
  EXPECT_THAT(outcome->best->plan.replicas[0].seats, ElementsAre(0, 1, 0));
  EXPECT_GE(outcome->best->price.step.value, 8 * 30);
}

TEST(FindStagePlan, MoreDevicesThanLayersAreReplicasOrIdle) {
  const TableStageCosts costs = even_stage_costs(1, 1, 5);
  const auto outcome = find_stage_plan({&costs, 5});
  ASSERT_TRUE(outcome && outcome->best);
  EXPECT_NEAR(outcome->best->price.step.value, 3, 1e-3);
  EXPECT_EQ(outcome->reason, StageReason::kOptimal);
}

// 400 bytes per sample besides 500 of states: micro-batches of 2 do not fit in 1,000 bytes.
TEST(FindStagePlan, MemoryMayForceMicroBatchesOfOne) {
  TableStageCosts costs = even_stage_costs(1, 1, 1);
  costs.launch = 1;
  costs.layer_bytes[0] = {Bytes(500), Bytes(0), Bytes(400), Bytes(0), Bytes(1)};
  const auto outcome = find_stage_plan({&costs, 4});
  ASSERT_TRUE(outcome && outcome->best);
  EXPECT_EQ(outcome->best->plan.replicas[0].micro_batch, 1);
  EXPECT_EQ(outcome->best->price.peak, Bytes(900));
}

TEST(FindStagePlan, SaysWhyNothingFits) {
  TableStageCosts costs = even_stage_costs(2, 1, 2);
  costs.layer_bytes[1].states = Bytes(2000);
  costs.said = {"what was left out"};
  const auto outcome = find_stage_plan({&costs, 4});
  ASSERT_TRUE(outcome);
  EXPECT_FALSE(outcome->best);
  EXPECT_EQ(outcome->reason, StageReason::kInfeasible);
  EXPECT_THAT(outcome->why,
              ElementsAre("what was left out", HasSubstr("layer 1 alone needs"),
                          "no replica fits: in no cut into stages does every stage fit a device"));
  EXPECT_EQ(find_stage_plan({&costs, 0}).error().message, "a batch of 0 samples, wanted 1 or more");
}

// The time of one sample on two devices together is unknown: no move puts a stage there.
TEST(FindMoves, LeavesOutUnitsThatDoNotKnowTheMicroBatch) {
  TableStageCosts costs = even_stage_costs(2, 1, 3);
  costs.device_pools[0].per_host = 3;
  costs.all_units.emplace_back(0, 2);
  costs.least_of_wide = 2;
  const auto is_wide = [](const MovedPlan& moved) {
    const std::vector<PlannedStage>& stages = moved.plan.replicas[0].stages;
    return std::any_of(stages.begin(), stages.end(), [](auto& stage) { return stage.unit == 1; });
  };
  const auto count = [&](std::int64_t samples) {
    const StagePlan plan{{{{{0, 2, 0}}, samples, samples}}};
    const std::vector<MovedPlan> moves = find_moves(plan, costs);
    return std::count_if(moves.begin(), moves.end(), is_wide);
  };
  EXPECT_EQ(count(1), 0);
  EXPECT_EQ(count(2), 3);  // all layers there, or those before or after a cut
}

// Two replicas of 3 devices do 10 each, one of 2 does 7: of 7 devices 3 + 2 + 2 do 24.
TEST(ChooseReplicas, FillsDevicesWithWholeReplicas) {
  EXPECT_THAT(choose_replicas({{10, {3}}, {7, {2}}}, {7}), ElementsAre(1, 2));
  EXPECT_THAT(choose_replicas({{10, {3, 0, 0}}, {7, {2, 0, 0}}, {5, {0, 1, 1}}}, {7, 2, 2}),
              ElementsAre(1, 2, 2));
  // A set larger than its pool is ignored.
  EXPECT_THAT(choose_replicas({{9, {4, 1, 0}}, {2, {1, 1, 0}}, {1, {0, 0, 1}}}, {3, 2, 2}),
              ElementsAre(0, 2, 2));
}

}  // namespace
}  // namespace motley::search
