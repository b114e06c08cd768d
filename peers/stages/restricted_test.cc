#include "peers/stages/restricted.h"

#include <gtest/gtest.h>

#include "motley/testing/table_stage_costs.h"

namespace motley::peers {
namespace {

// Two devices on which a layer takes 3 s a sample, two on which it takes 6. Of 8 samples: two
// pipelines of 4 and 2 layers, 12 s a stage, do 4 each in 5 times 12 s; one of four stages takes 11
// times 6; four devices alone take 2 times 36.
TEST(RestrictedStages, AmpCutsLayersForStagesOfUnlikeDevices) {
  const TableStageCosts costs = even_stage_costs(6, 2, 2);
  const auto found = find_restricted(StageSpace::kAmp, {&costs, 8});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_TRUE(found->has_value());
  EXPECT_NEAR((*found)->price.step.value, 60, 1e-6);
  const std::vector<search::StageReplica>& replicas = (*found)->plan.replicas;
  ASSERT_EQ(replicas.size(), 2u);
  for (const search::StageReplica& replica : replicas) {
    ASSERT_EQ(replica.stages.size(), 2u);
    EXPECT_EQ(replica.stages[0].end - replica.stages[0].first,
              replica.stages[0].unit == 0 ? 4u : 2u);
    EXPECT_EQ(replica.samples, 4);
  }
}

// What a restriction costs: nothing is quicker than what the whole space has.
TEST(RestrictedStages, NoneIsQuickerThanTheWholeSpace) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 40; ++i) {
    const TableStageCosts costs = random_stage_costs(random, 5, 5);
    const search::StageQuestion question{&costs, 8};
    const auto whole = search::find_stage_plan(question);
    ASSERT_TRUE(whole) << whole.error().message;
    for (const StageSpace space : {StageSpace::kEqual, StageSpace::kAmp, StageSpace::kSailor}) {
      const auto found = find_restricted(space, question);
      ASSERT_TRUE(found) << found.error().message;
      if (!found->has_value()) continue;
      ASSERT_TRUE(whole->best) << i;
      EXPECT_GE((*found)->price.step.value, whole->best->price.step.value * (1 - 1e-6))
          << i << " " << space_name(space);
    }
  }
}

}  // namespace
}  // namespace motley::peers
