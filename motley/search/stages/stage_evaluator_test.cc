#include "motley/search/stages/stage_evaluator.h"

#include <gtest/gtest.h>

#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

class StageEvaluatorTest : public ::testing::Test {
 protected:
  Result<StagePrice> price(const StagePlan& plan) const {
    const StageSums sums(costs_);
    return StageEvaluator(sums).price(plan);
  }
  double step(const StagePlan& plan) const {
    const auto priced = price(plan);
    EXPECT_TRUE(priced) << priced.error().message;
    return priced ? priced->step.value : 0;
  }

  /// Two layers, 1 s forward and 2 s backward per sample on `a`, twice that on `b`.
  TableStageCosts costs_ = even_stage_costs(2, 2, 2);
  const StageReplica two_stages_{{{0, 1, 0, 0, 0}, {1, 2, 0, 1, 0}}, 1, 2};
};

// Stage 0: F0 0-1, F1 1-2. Stage 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7. Stage 0: B0 4-6, B1 7-9.
TEST_F(StageEvaluatorTest, RunsOneForwardOneBackward) {
  const auto priced = price({{two_stages_}});
  ASSERT_TRUE(priced);
  EXPECT_NEAR(priced->step.value, 9, 1e-6);
  EXPECT_NEAR(priced->spans[0][1].first.value, 1, 1e-6);
  EXPECT_NEAR(priced->spans[0][1].last.value, 7, 1e-6);
  EXPECT_EQ(priced->spans[0][0].in_flight, 2);
  EXPECT_EQ(priced->spans[0][1].in_flight, 1);
}

// A byte per sample at 2 B/s: 0.5 s per message, overlapped. Stage 0: F0 0-1, F1 1-2. Stage 1: F0
// 1.5-2.5, B0 2.5-4.5, F1 4.5-5.5, B1 5.5-7.5. Stage 0: B0 5-7, B1 8-10.
TEST_F(StageEvaluatorTest, MessagesOverlap) {
  costs_.between = 2;
  EXPECT_NEAR(step({{two_stages_}}), 10, 1e-6);
}

// The same with blocking messages. Stage 0: F0 0-1, send 1-1.5, F1 1.5-2.5. Stage 1: F0 1.5-2.5, B0
// 2.5-4.5. Gradient 0 4.5-5, activation 1 5-5.5. Stage 0: B0 5.5-7.5; stage 1: F1 5.5-6.5, B1
// 6.5-8.5. Gradient 1 8.5-9. Stage 0: B1 9-11.
TEST_F(StageEvaluatorTest, MessagesBlockWhereTheRuntimeDoes) {
  costs_.between = 2;
  costs_.blocks = true;
  EXPECT_NEAR(step({{two_stages_}}), 11, 1e-6);
}

// The part after the passes: 12 s of passes, 8 bytes at 2 B/s, the update of both layers; with
// replicas that end at 12 and 13 s one second more.
TEST_F(StageEvaluatorTest, WhatFollowsThePassesIsPricedAlone) {
  costs_.between = 2;
  costs_.update_seconds = 0.25;
  for (LayerBytes& layer : costs_.layer_bytes) layer.gradients = Bytes(4);
  const StagePlan plan{{{{{0, 2, 0, 0, 0}}, 1, 2}, {{{0, 2, 0, 1, 0}}, 1, 2}}};
  const StageSums sums(costs_);
  const StageEvaluator evaluator(sums);
  EXPECT_NEAR(evaluator.first_exchange(plan)->value, 4, 1e-6);
  EXPECT_NEAR(evaluator.end_after(plan, {{Seconds(12)}, {Seconds(12)}})->value, step(plan), 1e-6);
  EXPECT_NEAR(evaluator.end_after(plan, {{Seconds(12)}, {Seconds(13)}})->value, 17.5, 1e-6);
  EXPECT_NEAR(evaluator.least_step(plan, {Seconds(12), Seconds(13)})->value, 17.5, 1e-6);
}

// Two replicas of one stage on separate hosts, 4 bytes of gradients per layer: 2 (2 - 1) / 2 * 8
// bytes at 2 B/s, after 12 s (two samples of 6 s), then the update of both layers.
TEST_F(StageEvaluatorTest, GradientsAreSummedThenWeightsUpdated) {
  costs_.between = 2;
  costs_.update_seconds = 0.25;
  for (LayerBytes& layer : costs_.layer_bytes) layer.gradients = Bytes(4);
  const StageReplica one{{{0, 2, 0, 0, 0}}, 1, 2}, other{{{0, 2, 0, 1, 0}}, 1, 2};
  const auto priced = price({{one, other}});
  ASSERT_TRUE(priced);
  EXPECT_NEAR(priced->exchange.value, 4, 1e-6);
  EXPECT_NEAR(priced->step.value, 12 + 4 + 0.5, 1e-6);
}

// In one host, which sends 2 B/s in all, each of the ring's two rounds moves half of 8 bytes twice.
TEST_F(StageEvaluatorTest, GradientsInsideAHostShareItsRate) {
  costs_.inside = 2;
  for (LayerBytes& layer : costs_.layer_bytes) layer.gradients = Bytes(4);
  costs_.device_pools[0].per_host = 2;
  const auto priced = price({{{{{0, 2, 0, 0, 0}}, 1, 2}, {{{0, 2, 0, 0, 1}}, 1, 2}}});
  ASSERT_TRUE(priced) << priced.error().message;
  EXPECT_NEAR(priced->exchange.value, 8, 1e-6);
}

// A stage of layers 0 and 1 sums layer 1 with one replica and then layer 0 with another: 4 bytes
// each at 2 B/s, although the second host's links are free.
TEST_F(StageEvaluatorTest, AStageDoesOneSumAfterTheOther) {
  costs_.between = 2;
  costs_.device_pools[0].devices = 4;
  for (LayerBytes& layer : costs_.layer_bytes) layer.gradients = Bytes(4), layer.output = Bytes(0);
  const StageReplica one{{{0, 2, 0, 0, 0}}, 1, 2};
  const StageReplica two{{{0, 1, 0, 1, 0}, {1, 2, 0, 2, 0}}, 1, 2};
  const auto priced = price({{one, two}});
  ASSERT_TRUE(priced) << priced.error().message;
  EXPECT_NEAR(priced->step.value, 12 + 2 + 2, 1e-6);
}

// Replicas that differ in kind, depth, and samples: the layers of two stages meet those of a single
// one. 3 samples of 6 s on the pair's clock: F0 0-1 F1 1-2, ... ends at 9 for two samples; the slow
// single one takes 12 s per sample.
TEST_F(StageEvaluatorTest, UnlikeReplicasMeetLayerByLayer) {
  for (LayerBytes& layer : costs_.layer_bytes) layer.gradients = Bytes(1);
  const StageReplica slow{{{0, 2, 1, 0, 0}}, 1, 1};
  const auto priced = price({{two_stages_, slow}});
  ASSERT_TRUE(priced);
  EXPECT_NEAR(priced->step.value, 12, 1e-6);
  EXPECT_NEAR(priced->spans[0][1].last.value, 7, 1e-6);
}

// Tied weights in stages of different kinds are summed: 1 byte there and back between two members
// is 2 (2 - 1) / 2 = 1 byte at 1 B/s after both last backward passes, at 15 s: the second stage
// takes 6 s per sample. Stage 0: F0 0-1; stage 1: F0 1-3, B0 3-7, F1 7-9, B1 9-13; stage 0: B1
// 13-15.
TEST_F(StageEvaluatorTest, TiedWeightsMayLieInUnlikeStages) {
  costs_.inside = 1e12;
  costs_.layer_bytes[1].gradients = Bytes(1);
  costs_.tied_layers = {0, 1};
  StageReplica replica = two_stages_;
  replica.stages[1] = {1, 2, 1, 0, 0};
  EXPECT_NEAR(step({{replica}}), 15, 1e-6);
  costs_.between = 1;
  // Messages of a byte take 1 s: F0 0-1, message 1-2, F0 2-4, B0 4-8, F1 8-10, B1 10-14, message
  // 14-15, B1 15-17, sum 17-18.
  EXPECT_NEAR(step({{replica}}), 18, 1e-6);
}

TEST_F(StageEvaluatorTest, SaysWhatIsMissing) {
  costs_.between = 0;
  EXPECT_EQ(price({{two_stages_}}).error().message, "no link from a to a");
  StagePlan plan{{two_stages_}};
  plan.replicas[0].stages[1].first = 2;
  EXPECT_EQ(price(plan).error().message, "replica 0, stage 1: layers 2 to 2, wanted a start at 1");
  plan.replicas[0].stages[1] = plan.replicas[0].stages[0];
  plan.replicas[0].stages[1].first = 1;
  plan.replicas[0].stages[1].end = 2;
  EXPECT_EQ(price(plan).error().message,
            "replica 0, stage 1: device 0 of a is in another stage with other devices: stages of a "
            "replica share all or none");
  plan.replicas[0] = two_stages_;
  plan.replicas[0].micro_batch = 8;
  plan.replicas[0].samples = 8;
  EXPECT_EQ(price(plan).error().message,
            "replica 0, stage 0: nobody knows what 8 samples take on a at degree 1");
}

// For any stages, the chosen order is never slower than 1F1B or H-1F1B, needs no more in flight
// than fits in memory, and has no deadlock (checked inside).
TEST(StageSchedule, TheChosenOneIsNeverWorse) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    TableStageCosts costs = random_stage_costs(random, 6, 5);
    for (auto& pool : costs.device_pools) pool.devices = pool.per_host * 6;
    for (std::size_t pool = 0; pool < costs.device_pools.size(); ++pool)
      costs.device_pools[pool].first_host = static_cast<int>(pool) * 6;
    const StageSums sums(costs);
    const StageEvaluator evaluator(sums);
    StageReplica replica{{}, 1, static_cast<std::int64_t>(1 + random() % 12)};
    const std::size_t stages = 1 + random() % 6;
    for (std::size_t s = 0; s < stages; ++s)
      replica.stages.push_back({s, s + 1 == stages ? 6 : s + 1, random() % costs.units().size(),
                                static_cast<int>(s), 0});
    StageReplica chosen = replica;
    ASSERT_TRUE(evaluator.choose_schedule(chosen));
    const double best = evaluator.pipeline(chosen)->value;
    for (const StageSchedule schedule : {StageSchedule::k1F1B, StageSchedule::kH1F1B,
                                         StageSchedule::kWide, StageSchedule::kDeepList}) {
      replica.schedule = schedule;
      EXPECT_LE(best, evaluator.pipeline(replica)->value) << i;
    }
    // The lower bound of any order (shape_search.h), without waits after the last backward pass.
  }
}

}  // namespace
}  // namespace motley::search
