#include "motley/search/stages/stage_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "motley/search/stages/whole_replicas.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The best of all plans of an instance by the simulator: every set of replicas, every way to share
/// the samples, the best schedule of each.
double best_by_trying(const TableStageCosts& costs, std::int64_t samples) {
  const StageSums sums(costs);
  const ShapeSearch search(sums, {});
  const StageEvaluator evaluator(sums);
  double best = INFINITY;
  StagePlan plan;
  std::vector<int> left;
  for (const DevicePool& pool : costs.pools()) left.push_back(pool.devices);
  std::function<void(std::int64_t)> add_replica;
  std::function<void(StageReplica, std::int64_t)> finish = [&](StageReplica replica,
                                                               std::int64_t rest) {
    ReplicaShape shape{{}, replica.micro_batch};
    for (const PlannedStage& stage : replica.stages)
      shape.stages.push_back({stage.first, stage.end, stage.unit});
    if (!search.is_valid(shape)) return;
    for (std::int64_t n = replica.micro_batch; n <= rest; ++n) {
      if (n % replica.micro_batch != 0 && n < 2 * replica.micro_batch) continue;
      replica.samples = n;
      plan.replicas.push_back(replica);
      add_replica(rest - n);
      plan.replicas.pop_back();
    }
  };
  std::function<void(StageReplica, std::int64_t)> extend = [&](StageReplica replica,
                                                               std::int64_t rest) {
    const std::size_t first = replica.stages.empty() ? 0 : replica.stages.back().end;
    if (first == costs.layers()) return finish(replica, rest);
    for (std::size_t unit = 0; unit < costs.units().size(); ++unit) {
      int& devices = left[costs.units()[unit].pool];
      if (devices < costs.units()[unit].degree) continue;
      devices -= costs.units()[unit].degree;
      for (std::size_t end = first + 1; end <= costs.layers(); ++end) {
        StageReplica longer = replica;
        longer.stages.push_back({first, end, unit});
        extend(longer, rest);
      }
      devices += costs.units()[unit].degree;
    }
  };
  add_replica = [&](std::int64_t rest) {
    if (rest == 0) {
      for (const StagePlacing placing : {StagePlacing::kByStage, StagePlacing::kByReplica}) {
        StagePlan placed = plan;
        if (!place_stages(placed, costs, placing)) continue;
        for (StageReplica& replica : placed.replicas)
          if (!evaluator.choose_schedule(replica)) return;
        const auto price = evaluator.price(placed);
        if (price && price->fits) best = std::min(best, price->step.value);
      }
      return;
    }
    for (const std::int64_t micro : costs.micro_batches())
      if (micro <= rest) extend({{}, micro, 0}, rest);
  };
  add_replica(samples);
  return best;
}

// No plan beats the bound, and what is found is a plan of the batch that is not far from the best.
TEST(FindStagePlan, LiesBetweenTheBoundAndTheBestOfAllPlans) {
  std::mt19937_64 random(5);
  double excess = 0;
  int compared = 0, equal = 0;
  for (int i = 0; i < 60; ++i) {
    TableStageCosts costs = random_stage_costs(random, 3, 3);
    costs.batches = {1, 2};
    const double best = best_by_trying(costs, 5);
    const auto outcome = find_stage_plan({&costs, 5});
    ASSERT_TRUE(outcome) << outcome.error().message;
    if (!outcome->best) {
      EXPECT_TRUE(std::isinf(best)) << i;
      continue;
    }
    const double step = outcome->best->price.step.value;
    EXPECT_LE(outcome->lower_bound.value, best * (1 + 1e-9)) << i;
    EXPECT_LE(outcome->lower_bound.value, step) << i;
    std::int64_t samples = 0;
    for (const StageReplica& replica : outcome->best->plan.replicas) samples += replica.samples;
    EXPECT_EQ(samples, 5) << i;
    EXPECT_TRUE(verify_stage_plan(outcome->best->plan, costs));
    ++compared;
    excess += step / best - 1;
    if (step <= best * (1 + 1e-6)) ++equal;
  }
  EXPECT_GT(compared, 40);
  EXPECT_LT(excess / compared, 0.005);
  EXPECT_GE(equal * 10, compared * 9);
}

// Two devices of `a` at 6 s a sample, one of `b` at 12 s: 4, 4 and 2 of 10 samples take 24 s.
TEST(FindStagePlan, SharesSamplesBySpeed) {
  TableStageCosts costs = even_stage_costs(2, 2, 2);
  costs.device_pools[1].devices = 1;
  const auto outcome = find_stage_plan({&costs, 10});
  ASSERT_TRUE(outcome && outcome->best);
  EXPECT_NEAR(outcome->best->price.step.value, 24, 1e-3);
  EXPECT_GT(outcome->lower_bound.value, 23.8);
}

// A device that cannot be reached stays idle, and a batch that nothing divides is done whole.
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

// One giant layer: it sets the pace, the others share a device.
TEST(FindStagePlan, AGiantLayerHasADeviceOfItsOwn) {
  TableStageCosts costs = even_stage_costs(4, 1, 2);
  costs.forward[0] = {1, 10, 1, 1};
  costs.backward[0] = {2, 20, 2, 2};
  costs.layer_bytes.assign(4, {Bytes(300), Bytes(0), Bytes(0), Bytes(0), Bytes(1)});
  const auto outcome = find_stage_plan({&costs, 8});
  ASSERT_TRUE(outcome && outcome->best);
  ASSERT_EQ(outcome->best->plan.replicas.size(), 1u);
  EXPECT_EQ(outcome->best->plan.replicas[0].stages.size(), 2u);
  EXPECT_GE(outcome->best->price.step.value, 8 * 30);
}

TEST(FindStagePlan, MoreDevicesThanLayersAreReplicasOrIdle) {
  const TableStageCosts costs = even_stage_costs(1, 1, 5);
  const auto outcome = find_stage_plan({&costs, 5});
  ASSERT_TRUE(outcome && outcome->best);
  EXPECT_NEAR(outcome->best->price.step.value, 3, 1e-3);
  EXPECT_EQ(outcome->reason, StageReason::kOptimal);
}

// 400 bytes a sample of one layer beside 500 of states: micro-batches of 2 do not fit 1,000 bytes.
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

// 7 devices: two replicas of 3 do 10 each; one of 2 does 7; 3 + 3 leaves one idle, 3 + 2 + 2
// does 24.
TEST(ChooseReplicas, FillsDevicesWithWholeReplicas) {
  EXPECT_THAT(choose_replicas({{10, {3}}, {7, {2}}}, {7}), ElementsAre(1, 2));
  EXPECT_THAT(choose_replicas({{10, {3, 0, 0}}, {7, {2, 0, 0}}, {5, {0, 1, 1}}}, {7, 2, 2}),
              ElementsAre(1, 2, 2));
}

}  // namespace
}  // namespace motley::search
