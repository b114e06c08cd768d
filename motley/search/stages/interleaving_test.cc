#include "motley/search/stages/interleaving.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "motley/search/stages/stage_search.h"
#include "motley/testing/rounds.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;

/// Stages of one layer each, `turns` rounds over the device slots.
StageReplica rounds(std::size_t seats, std::size_t turns, std::int64_t micro_batches) {
  StageReplica replica{{}, 1, micro_batches, StageSchedule::kInterleaved};
  for (std::size_t s = 0; s < seats * turns; ++s) {
    replica.stages.push_back({s, s + 1, 0, static_cast<int>(s % seats), 0});
    replica.seats.push_back(s % seats);
  }
  return replica;
}

/// Four layers of 1 s forward and 2 s backward, two devices that hold three.
TableStageCosts two_devices_of_four_layers() {
  TableStageCosts costs = even_stage_costs(4, 1, 2);
  costs.batches = {1};
  for (LayerBytes& layer : costs.layer_bytes) layer.states = Bytes(300);
  return costs;
}

// S devices with V stages each, of 1 s forward and 2 s backward: (m + (S - 1) / V) 3 V seconds;
// with one stage each (m + S - 1) 3 V (Narayanan et al., SC 2021).
TEST(Interleaving, FillsInAPartOfTheTime) {
  for (const std::size_t seats : {2, 3, 4})
    for (const std::size_t turns : {2, 3})
      for (const std::size_t times : {1, 2, 3}) {
        const TableStageCosts costs = even_stage_costs(seats * turns, 1, static_cast<int>(seats));
        const StageSums sums(costs);
        StageReplica replica = rounds(seats, turns, static_cast<std::int64_t>(times * seats));
        const auto seconds = StageEvaluator(sums).choose_schedule(replica);
        ASSERT_TRUE(seconds) << seconds.error().message;
        EXPECT_NEAR(seconds->value, 3.0 * static_cast<double>(times * seats * turns + seats - 1),
                    1e-6)
            << seats << " " << turns << " " << times;
      }
}

// Two micro-batches: one device runs F0a F1a F0c F1c B0c B1c B0a B1a, the other F0b F1b F0d B0d F1d
// B1d B0b B1b from 1 s on: 15 s. One stage each takes 3 * 6, a wave of 1, 2 and 1 layers 16.
TEST(Interleaving, IsFoundWhereItIsFastest) {
  const TableStageCosts costs = two_devices_of_four_layers();
  const auto apart = find_stage_plan({.costs = &costs, .global_batch = 2, .interleaves = false});
  EXPECT_NEAR(apart->best->price.step.value, 18, 1e-6);
  EXPECT_EQ(apart->reason, StageReason::kOptimal);
  EXPECT_FALSE(apart->apart_bound);
  const auto found = find_stage_plan({.costs = &costs, .global_batch = 2});
  ASSERT_TRUE(found && found->best);
  EXPECT_NEAR(found->best->price.step.value, 15, 1e-6);
  const StageReplica& replica = found->best->plan.replicas.front();
  EXPECT_THAT(replica.seats, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(used_devices(found->best->plan, costs), ElementsAre(2));
  EXPECT_EQ(found->best->price.peak, Bytes(600));
  // 24 s of work on two devices; one stage each takes 18 s.
  EXPECT_NEAR(found->lower_bound.value, 12, 1e-6);
  EXPECT_NEAR(found->apart_bound->value, 18, 1e-3);
  EXPECT_EQ(found->reason, StageReason::kFeasible);
}

// Each device keeps 100 bytes per micro-batch and stage: four of them on the first at 4 s.
TEST(Interleaving, HoldsWhatItsStagesHoldTogether) {
  TableStageCosts costs = two_devices_of_four_layers();
  for (LayerBytes& layer : costs.layer_bytes) layer.kept = Bytes(100);
  const StageSums sums(costs);
  const StageEvaluator evaluator(sums);
  const auto price = evaluator.price({{rounds(2, 2, 2)}});
  ASSERT_TRUE(price);
  EXPECT_EQ(price->spans[0][0].peak, Bytes(600 + 400));
  EXPECT_EQ(price->spans[0][2].peak, Bytes(600 + 400));
  EXPECT_EQ(price->spans[0][0].in_flight, 2);
  EXPECT_TRUE(price->fits);
  // 110 each would need 1,040 of 1,000 bytes: one fewer is in flight, which is slower.
  for (LayerBytes& layer : costs.layer_bytes) layer.kept = Bytes(110);
  const StageSums more(costs);
  const auto less = StageEvaluator(more).price({{rounds(2, 2, 2)}});
  EXPECT_TRUE(less->fits);
  EXPECT_LE(less->peak, Bytes(1000));
  EXPECT_GT(less->step.value, 15);
}

// A device with the first and the last layer holds their shared weight once, without a sum.
TEST(Interleaving, TiedWeightsOfOneDeviceAreHeldOnce) {
  TableStageCosts costs = two_devices_of_four_layers();
  costs.layer_bytes[0].gradients = costs.layer_bytes[3].gradients = Bytes(1'000'000);
  costs.between = costs.inside = 1e6;
  StageReplica wave{{{0, 1, 0, 0, 0}, {1, 3, 0, 1, 0}, {3, 4, 0, 0, 0}}, 1, 2};
  wave.schedule = StageSchedule::kInterleaved;
  wave.seats = {0, 1, 0};
  const auto price_of = [&] {
    const StageSums sums(costs);
    return *StageEvaluator(sums).price({{wave}});
  };
  const StagePrice apart = price_of();
  costs.tied_layers = {0, 3};
  const StagePrice tied = price_of();
  EXPECT_EQ(apart.spans[0][0].peak.value - tied.spans[0][0].peak.value, 300);
  EXPECT_EQ(tied.step, apart.step);
}

TEST(Interleaving, SaysWhatIsNoPlan) {
  const TableStageCosts costs = two_devices_of_four_layers();
  const auto message = [&](const StageReplica& replica) {
    return verify_stage_plan({{replica}}, costs).error().message;
  };
  StageReplica replica = rounds(2, 2, 2);
  EXPECT_TRUE(verify_stage_plan({{replica}}, costs));
  replica.seats = {0, 1, 0};
  EXPECT_EQ(message(replica), "replica 0: seats of 3 stages, wanted 4");
  replica.seats = {0, 1, 1, 0};
  EXPECT_EQ(message(replica), "replica 0, stage 2: other devices than stage 1, whose seat it has");
  replica.seats = {0, 2, 0, 1};
  EXPECT_EQ(message(replica), "replica 0, stage 1: seat 2, wanted at most 1");
  EXPECT_EQ(verify_stage_plan({{rounds(2, 2, 2), rounds(2, 2, 2)}}, costs).error().message,
            "replica 1, stage 0: device 0 of a is in replica 0, too");
}

TEST(Interleaving, IsNeverWorse) {
  std::mt19937_64 random(8);
  std::size_t better = 0;
  const std::size_t instances = testing::rounds(40, 100);
  for (std::size_t i = 0; i < instances; ++i) {
    TableStageCosts costs = random_stage_costs(random, 6, 5);
    costs.batches = {1, 2};
    const auto batch = static_cast<std::int64_t>(2 + random() % 4);
    const auto apart =
        find_stage_plan({.costs = &costs, .global_batch = batch, .interleaves = false});
    const auto found = find_stage_plan({.costs = &costs, .global_batch = batch});
    ASSERT_TRUE(apart && found) << i;
    ASSERT_EQ(apart->best.has_value(), found->best.has_value()) << i;
    if (!found->best) continue;
    EXPECT_LE(found->best->price.step, apart->best->price.step) << i;
    EXPECT_TRUE(verify_stage_plan(found->best->plan, costs)) << i;
    EXPECT_TRUE(found->best->price.fits) << i;
    EXPECT_LE(found->lower_bound, found->best->price.step) << i;
    EXPECT_GE(*found->apart_bound, found->lower_bound) << i;
    better += found->best->price.step < apart->best->price.step ? 1 : 0;
    EXPECT_EQ(found->best->price.step < apart->best->price.step, is_interleaved(found->best->plan))
        << i;
  }
  EXPECT_GT(better, instances / 20);
}

}  // namespace
}  // namespace motley::search
