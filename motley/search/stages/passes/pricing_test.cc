#include "motley/search/stages/passes/pricing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "motley/search/stages/passes/sharing.h"
#include "motley/search/stages/passes/time_bracket.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;

TEST(LeastTime, IsWhereEnoughIsDone) {
  const auto floored = [](double seconds) { return std::llround(std::floor(seconds)); };
  EXPECT_NEAR(least_time(1, 5, floored), 5, 1e-4);
  EXPECT_TRUE(std::isinf(least_time(1, 5, [](double) { return std::int64_t{0}; })));
}

// 10 devices in hosts of one: up to 1, 2, 4 and 10 replicas, rings over 2, 3 and 5 or more.
TEST(SearchSpace, ClassesRiseByPowersOfTwo) {
  const TableStageCosts costs = even_stage_costs(2, 2, 5);
  const StageQuestion question{&costs, 1};
  const SearchSpace space(question);
  ASSERT_EQ(space.classes.size(), 4u);
  const double most[] = {1, 2, 4, 10}, rounds[] = {0, 1, 4.0 / 3, 1.6};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(space.classes[i].most, most[i]);
    EXPECT_DOUBLE_EQ(space.classes[i].rounds, rounds[i]);
  }
  EXPECT_FALSE(space.has_few_devices());
  EXPECT_TRUE(space.runs("counts"));
}

TEST(ReplicaMix, DepthsDouble) {
  StagePlan plan{{{}}};
  std::vector<int> classes;
  for (int stages = 1; stages <= 5; ++stages) {
    plan.replicas[0].stages.emplace_back();
    classes.push_back(depth_class(plan));
  }
  EXPECT_THAT(classes, ElementsAre(0, 1, 2, 2, 3));
}

// Two devices of 6 s a sample and one of 12 s: 4, 4 and 2 of 10 samples take 24 s.
TEST(ShareSamples, LetsAllEndTogether) {
  TableStageCosts costs = even_stage_costs(2, 2, 2);
  costs.device_pools[1].devices = 1;
  const StageQuestion question{&costs, 10};
  const SearchSpace space(question);
  const ShapeEstimates estimates(space, 1);
  const ReplicaMix mix{{{{{{0, 2, 0}}, 1}, 2}, {{{{0, 2, 1}}, 1}, 1}}};
  MixPlan made = plan_of(mix);
  ASSERT_TRUE(place_stages(made.plan, costs, StagePlacing::kByStage));
  const auto samples = share_samples(space, estimates, mix, made);
  ASSERT_TRUE(samples);
  EXPECT_THAT(*samples, ElementsAre(4, 2));
  const auto priced = price_mix(space, estimates, mix, LayerMoves::kTried, Seconds(INFINITY));
  ASSERT_TRUE(priced && priced->best);
  EXPECT_NEAR(priced->best->price.step.value, 24, 1e-3);
}

// 5 and 5 of 8 samples in micro-batches of 2: what is left over goes first.
TEST(TrimSamples, TakesWhatIsLeftOverFirst) {
  const TableStageCosts costs = even_stage_costs(2, 1, 2);
  const StageQuestion question{&costs, 8};
  const SearchSpace space(question);
  const ReplicaMix mix{{{{{{0, 2, 0}}, 2}, 2}}};
  MixPlan made = plan_of(mix);
  for (StageReplica& replica : made.plan.replicas) replica.samples = 5;
  trim_samples(space, mix, made);
  ASSERT_EQ(made.plan.replicas.size(), 2u);
  EXPECT_EQ(made.plan.replicas[0].samples, 4);
  EXPECT_EQ(made.plan.replicas[1].samples, 4);
}

}  // namespace
}  // namespace motley::search
