#include "peers/spaces/stage_spaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/table_stage_costs.h"
#include "motley/testing/test_name.h"

namespace motley::peers {
namespace {

using ::testing::ElementsAre;

search::StageOutcome find_or_fail(StageSpace space, const search::StageCosts& costs,
                                  std::int64_t batch) {
  auto found = find_restricted(space, {&costs, batch});
  EXPECT_TRUE(found) << found.error().message;
  return found ? *std::move(found) : search::StageOutcome{};
}

/// Two devices where a layer takes 3 s per sample, two where it takes 6; six layers, 8 samples.
const TableStageCosts& two_and_two() {
  static const TableStageCosts costs = even_stage_costs(6, 2, 2);
  return costs;
}

std::vector<std::int64_t> replica_samples(const search::StagePlan& plan) {
  std::vector<std::int64_t> samples;
  for (const search::StageReplica& replica : plan.replicas) samples.push_back(replica.samples);
  return samples;
}

// Each device does 2 samples, the slow ones at 36 s each; two stages would take 18 s, five times.
TEST(RestrictedStages, EqualPipelinesWaitForTheSlowKind) {
  const search::StageOutcome found = find_or_fail(StageSpace::kEqual, two_and_two(), 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 72, 1e-6);
  EXPECT_THAT(replica_samples(found.best->plan), ElementsAre(2, 2, 2, 2));
}

// Six layers on four stages: 1, 2, 1, 2. With the slow kind on one layer, each takes 6 s, 11 times.
TEST(RestrictedStages, SailorChoosesTheKindOfEachStage) {
  const search::StageOutcome found = find_or_fail(StageSpace::kSailor, two_and_two(), 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 66, 1e-6);
  ASSERT_EQ(found.best->plan.replicas.size(), 1u);
  for (const search::PlannedStage& stage : found.best->plan.replicas.front().stages)
    EXPECT_EQ(stage.unit, stage.end - stage.first == 2 ? 0u : 1u);
}

// 3 samples of 18 s on each fast device, 1 of 36 on each slow one.
TEST(RestrictedStages, UniformPipelinesShareSamplesBySpeed) {
  const search::StageOutcome found = find_or_fail(StageSpace::kUniform, two_and_two(), 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 54, 1e-3);
  EXPECT_THAT(replica_samples(found.best->plan), ElementsAre(3, 3, 1, 1));
}

// Two pipelines of 4 and 2 layers, 12 s per stage, do 4 samples each in 5 times 12 s; one of four
// stages takes 11 times 6; four devices alone take 2 times 36.
TEST(RestrictedStages, AmpCutsLayersForStagesOfUnlikeDevices) {
  const search::StageOutcome found = find_or_fail(StageSpace::kAmp, two_and_two(), 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 60, 1e-6);
  ASSERT_THAT(replica_samples(found.best->plan), ElementsAre(4, 4));
  for (const search::StageReplica& replica : found.best->plan.replicas) {
    ASSERT_EQ(replica.stages.size(), 2u);
    EXPECT_EQ(replica.stages[0].end - replica.stages[0].first,
              replica.stages[0].unit == 0 ? 4u : 2u);
  }
}

// One pipeline of 2, 2, 1 and 1 layers, 6 s per stage: 8 samples and 3 to fill.
TEST(RestrictedStages, HarpPutsAllDevicesInOnePipeline) {
  const search::StageOutcome found = find_or_fail(StageSpace::kHarp, two_and_two(), 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 66, 1e-6);
  ASSERT_EQ(found.best->plan.replicas.size(), 1u);
  const search::StageReplica& replica = found.best->plan.replicas.front();
  EXPECT_EQ(replica.schedule, search::StageSchedule::kH1F1B);
  std::vector<std::size_t> ends;
  for (const search::PlannedStage& stage : replica.stages) ends.push_back(stage.end);
  EXPECT_THAT(ends, ElementsAre(2, 4, 5, 6));
}

// Units that recompute exclude all others.
TEST(RestrictedStages, HarpRecomputesWhereItCan) {
  TableStageCosts costs = two_and_two();
  costs.all_units = {{0, 1, false}, {0, 1, true}, {1, 1, false}, {1, 1, true}};
  const search::StageOutcome found = find_or_fail(StageSpace::kHarp, costs, 8);
  ASSERT_TRUE(found.best);
  for (const search::PlannedStage& stage : found.best->plan.replicas.front().stages)
    EXPECT_TRUE(costs.all_units[stage.unit].recomputes);
}

// One group does as uniform pipelines do. Two groups, of a kind each, take 5 times 12 s.
TEST(RestrictedStages, ZorseGivesAGroupsMembersMicroBatchesBySpeed) {
  const search::StageOutcome found = find_or_fail(StageSpace::kZorse, two_and_two(), 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 54, 1e-6);
  EXPECT_THAT(replica_samples(found.best->plan), ElementsAre(3, 3, 1, 1));
}

// A device that takes 10,000 s per sample gets one all the same; without it the step takes 54 s.
TEST(RestrictedStages, ZorseAndHarpLeaveNoDeviceIdle) {
  TableStageCosts costs = even_stage_costs(1, 2, 1);
  costs.forward[1] = {4000};
  costs.backward[1] = {6000};
  const search::StageOutcome found = find_or_fail(StageSpace::kZorse, costs, 8);
  ASSERT_TRUE(found.best);
  EXPECT_NEAR(found.best->price.step.value, 10'000, 1e-6);
  // One layer is not enough for two stages.
  const search::StageOutcome harp = find_or_fail(StageSpace::kHarp, costs, 8);
  EXPECT_EQ(harp.reason, search::StageReason::kInfeasible);
  EXPECT_THAT(harp.why, ElementsAre("no plan of HARP's space was found that fits"));
}

// Members hold at most two layers: two groups of two.
TEST(RestrictedStages, ZorseCutsLayersOverGroupsThatFit) {
  TableStageCosts costs = even_stage_costs(4, 2, 2);
  for (search::LayerBytes& layer : costs.layer_bytes) layer.states = Bytes(400);
  const search::StageOutcome found = find_or_fail(StageSpace::kZorse, costs, 8);
  ASSERT_TRUE(found.best);
  for (const search::StageReplica& replica : found.best->plan.replicas) {
    ASSERT_EQ(replica.stages.size(), 2u);
    EXPECT_EQ(replica.stages[0].end, 2u);
  }
}

TEST(RestrictedStages, SaysWhatIsWrong) {
  const auto found = find_restricted(StageSpace::kAmp, {&two_and_two(), 0});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message, "a batch of 0 samples, wanted 1 or more");
  TableStageCosts apart = two_and_two();
  apart.between = apart.inside = 0;
  EXPECT_THAT(find_or_fail(StageSpace::kHarp, apart, 8).why,
              ElementsAre("no plan of HARP's space was found that fits"));
}

TEST(RestrictedStages, AreFoundByTheirPlannersNames) {
  for (const StageSpaceName& each : kStageSpaces)
    EXPECT_EQ(find_stage_space(each.planner), each.space);
  EXPECT_EQ(find_stage_space("stages"), std::nullopt);
}

class RestrictedSpaces : public ::testing::TestWithParam<StageSpaceName> {};

// The cost of a restriction: nothing beats the whole space, and all do the batch.
TEST_P(RestrictedSpaces, AreNoQuickerThanTheWholeSpace) {
  std::mt19937_64 random(7);
  int feasible = 0;
  for (int i = 0; i < 60; ++i) {
    SCOPED_TRACE(i);
    const TableStageCosts costs = random_stage_costs(random, 5, 5);
    const search::StageQuestion question{&costs, 8};
    const search::StageOutcome found = find_or_fail(GetParam().space, costs, 8);
    if (!found.best) continue;
    ++feasible;
    const auto whole = search::find_stage_plan(question);
    ASSERT_TRUE(whole) << whole.error().message;
    ASSERT_TRUE(whole->best);
    EXPECT_GE(found.best->price.step.value, whole->best->price.step.value * (1 - 1e-6));
    EXPECT_LE(found.lower_bound, found.best->price.step);
    EXPECT_TRUE(search::verify_stage_plan(found.best->plan, costs));
    std::int64_t samples = 0;
    for (const std::int64_t each : replica_samples(found.best->plan)) samples += each;
    EXPECT_EQ(samples, 8);
  }
  EXPECT_GT(feasible, 5);
}

INSTANTIATE_TEST_SUITE_P(All, RestrictedSpaces, ::testing::ValuesIn(kStageSpaces),
                         [](const auto& info) { return testing::test_name(info.param.planner); });

}  // namespace
}  // namespace motley::peers
