#include "motley/search/stages/shapes/zones.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "motley/search/stages/stage_search.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::Pair;

/// Each zone has `hosts` hosts with a device of kind a, and of kind b, which takes twice as long; 1
/// s forward and 2 s backward per layer and sample.
TableStageCosts zoned_costs(std::size_t zones, int hosts, std::size_t layers) {
  TableStageCosts costs = even_stage_costs(layers, 2 * zones, hosts);
  for (std::size_t pool = 0; pool < costs.device_pools.size(); ++pool) {
    costs.device_pools[pool].kind = pool % 2 == 0 ? "a" : "b";
    costs.device_pools[pool].zone = std::string(1, static_cast<char>('p' + pool / 2));
    costs.forward[pool].assign(layers, pool % 2 == 0 ? 1 : 2);
    costs.backward[pool].assign(layers, pool % 2 == 0 ? 2 : 4);
  }
  costs.between_zones = costs.between / 4;
  return costs;
}

TEST(FindZoneStretches, AreByWhatDevicesCompute) {
  TableStageCosts costs = zoned_costs(2, 2, 12);
  EXPECT_THAT(find_zone_stretches(costs),
              Optional(ElementsAre(Pair(0, 6), Pair(0, 6), Pair(6, 12), Pair(6, 12))));
  // 8 + 1 against 2 + 1.
  costs.forward[0].assign(12, 0.25);
  costs.backward[0].assign(12, 0.5);
  EXPECT_THAT(find_zone_stretches(costs),
              Optional(ElementsAre(Pair(0, 9), Pair(0, 9), Pair(9, 12), Pair(9, 12))));
}

TEST(FindZoneStretches, NeedLinksThatDiffer) {
  TableStageCosts costs = zoned_costs(2, 2, 12);
  costs.between_zones = costs.between / 1.5;
  EXPECT_FALSE(find_zone_stretches(costs));
  costs.between_zones = 0;  // no link between them
  EXPECT_FALSE(find_zone_stretches(costs));
}

TEST(FindZoneStretches, NeedTwoHostsEachAndAsManyLayers) {
  TableStageCosts costs = zoned_costs(2, 1, 12);
  EXPECT_TRUE(find_zone_stretches(costs));
  // All devices of a zone are in one host.
  costs.device_pools[1].first_host = costs.device_pools[0].first_host;
  EXPECT_FALSE(find_zone_stretches(costs));
  EXPECT_FALSE(find_zone_stretches(zoned_costs(3, 2, 2)));
}

// The profile has none of the cluster's kinds.
TEST(FindZoneStretches, NeedUnits) {
  TableStageCosts costs = zoned_costs(2, 2, 12);
  costs.all_units.clear();
  EXPECT_FALSE(find_zone_stretches(costs));
}

/// Gradient sums are slow between zones and fast within. No layers are summed over zones, and the
/// step is far below that of the best plan which does so.
TEST(FindStagePlan, GradientsStayInZones) {
  TableStageCosts costs = zoned_costs(2, 8, 12);
  costs.between = 100;
  costs.between_zones = 5;
  costs.inside = 1000;
  costs.batches = {1};
  costs.layer_bytes.assign(12, {Bytes(60), Bytes(400), Bytes(0), Bytes(0), Bytes(1)});
  const auto outcome = find_stage_plan({.costs = &costs, .global_batch = 96});
  ASSERT_TRUE(outcome && outcome->best);
  std::vector<std::string> zone_of(costs.layers());
  for (const StageReplica& replica : outcome->best->plan.replicas)
    for (const PlannedStage& stage : replica.stages)
      for (std::size_t layer = stage.first; layer < stage.end; ++layer) {
        const std::string& zone = costs.pools()[costs.units()[stage.unit].pool()].zone;
        if (zone_of[layer].empty()) zone_of[layer] = zone;
        EXPECT_EQ(zone_of[layer], zone) << layer;
      }
  EXPECT_GT(outcome->best->plan.replicas.size(), 1u);
  EXPECT_GE(outcome->best->price.step, outcome->lower_bound);
}

}  // namespace
}  // namespace motley::search
