#include "motley/search/stages/gradient_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

// Cuts after layer 2, and after layer 1, make three sums: layers [2, 4) of 2 bytes, [1, 2) and
// [0, 1) of one. At 1 B/s two members sum their bytes in as many seconds. [2, 4) begins, and holds
// the second stage of both replicas. [1, 2) waits for one of them, [0, 1) for none, so it is next.
TEST(GradientSums, TheOneThatCanBeginFirstDoes) {
  TableStageCosts costs = even_stage_costs(4, 1, 4);
  costs.between = 1;
  for (LayerBytes& layer : costs.layer_bytes) layer.gradients = Bytes(1);
  const StagePlan plan{
      {{{{0, 2, 0, 0, 0}, {2, 4, 0, 1, 0}}, 1, 2}, {{{0, 1, 0, 2, 0}, {1, 4, 0, 3, 0}}, 1, 2}}};
  const StageSums sums(costs);
  StageTransfers transfers(costs, LinkSharing::kShared);
  const auto found = find_replica_sums(sums, place_in_cluster(plan, costs), transfers);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 3U);
  const auto bytes = [&](std::size_t sum) {
    return (*found)[sum].transfer.phases[0].flows[0].bytes;
  };
  EXPECT_THAT((*found)[0].members, ElementsAre(Pair(0, 1), Pair(1, 1)));
  EXPECT_EQ(bytes(0), 2);
  EXPECT_THAT((*found)[1].members, ElementsAre(Pair(0, 0), Pair(1, 0)));
  EXPECT_EQ(bytes(1), 1);
  EXPECT_THAT((*found)[2].members, ElementsAre(Pair(0, 0), Pair(1, 1)));
}

// Tied weights are summed by the stages that hold them, unless both are on the same devices.
TEST(GradientSums, TiedWeightsOfTwoStages) {
  TableStageCosts costs = even_stage_costs(4, 1, 2);
  costs.between = 1;
  costs.tied_layers = {0, 3};
  for (LayerBytes& layer : costs.layer_bytes) layer.gradients = Bytes(1);
  StagePlan plan{{{{{0, 2, 0, 0, 0}, {2, 4, 0, 1, 0}}, 1, 2}}};
  const StageSums sums(costs);
  StageTransfers transfers(costs, LinkSharing::kShared);
  const auto found = find_tied_sums(sums, plan, place_in_cluster(plan, costs), transfers);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1U);
  EXPECT_THAT(found->front().members, ElementsAre(Pair(0, 0), Pair(0, 1)));
  plan.replicas[0].stages = {{0, 4, 0, 0, 0}};
  EXPECT_TRUE(find_tied_sums(sums, plan, place_in_cluster(plan, costs), transfers)->empty());
}

}  // namespace
}  // namespace motley::search
