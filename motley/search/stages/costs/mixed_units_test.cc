#include "motley/search/stages/costs/mixed_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/search/stages/all_places.h"
#include "motley/search/stages/shapes/sample_bound.h"
#include "motley/search/stages/shapes/shape_search.h"
#include "motley/search/stages/stage_plan.h"
#include "motley/testing/table_stage_costs.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

DevicePool pool(int devices, int per_host, int first_host) {
  return {"x", "", devices, per_host, Bytes(1), first_host};
}

using Parts = std::vector<UnitPart>;

TEST(MixedUnits, AreOfPoolsThatShareTheirHosts) {
  EXPECT_THAT(find_mixed_units({pool(4, 2, 0), pool(2, 1, 2)}, {1, 1}), IsEmpty());
  // Both hosts have one device of the first and three of the second kind.
  EXPECT_THAT(find_mixed_units({pool(2, 1, 0), pool(6, 3, 0), pool(8, 4, 2)}, {1, 2, 3}),
              ElementsAre(StageUnit(Parts{{0, 1}, {1, 3}})));
  EXPECT_THAT(find_mixed_units({pool(4, 4, 0), pool(8, 8, 0)}, {1, 2}),
              ElementsAre(StageUnit(Parts{{0, 4}, {1, 8}}), StageUnit(Parts{{0, 2}, {1, 4}}),
                          StageUnit(Parts{{0, 1}, {1, 2}})));
  EXPECT_THAT(
      find_mixed_units({pool(1, 1, 0), pool(1, 1, 0), pool(1, 1, 0)}, {1, 2, 3}),
      ElementsAre(StageUnit(Parts{{0, 1}, {1, 1}}), StageUnit(Parts{{0, 1}, {1, 1}, {2, 1}}),
                  StageUnit(Parts{{0, 1}, {2, 1}}), StageUnit(Parts{{1, 1}, {2, 1}})));
  const std::vector<DevicePool> five(5, pool(1, 1, 0));
  EXPECT_THAT(
      find_mixed_units(five, {1, 5, 2, 4, 3}),
      ElementsAre(StageUnit(Parts{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}}),
                  StageUnit(Parts{{1, 1}, {2, 1}, {3, 1}, {4, 1}}),
                  StageUnit(Parts{{1, 1}, {3, 1}}), StageUnit(Parts{{1, 1}, {3, 1}, {4, 1}})));
}

/// Two hosts, each with two of a and two of b; units a, b, a + b and 2 a + 2 b.
TableStageCosts two_mixed_hosts() {
  TableStageCosts costs = even_stage_costs(2, 2, 4);
  for (DevicePool& each : costs.device_pools) each.per_host = 2, each.first_host = 0;
  for (StageUnit& unit : find_mixed_units(costs.device_pools, {2, 1}))
    costs.all_units.push_back(unit);
  return costs;
}

TEST(MixedUnits, AreSeatedInOneHost) {
  const TableStageCosts costs = two_mixed_hosts();
  ASSERT_EQ(costs.units().size(), 4u);
  // 2 a + 2 b take one host, a and a + b the other; one b is idle.
  StagePlan plan{{{{{0, 1, 0}, {1, 2, 3}}, 1, 1}, {{{0, 2, 2}}, 1, 1}}};
  ASSERT_TRUE(place_stages(plan, costs, StagePlacing::kByStage));
  EXPECT_TRUE(verify_stage_plan(plan, costs)) << verify_stage_plan(plan, costs).error().message;
  const std::vector<PlannedStage>& first = plan.replicas[0].stages;
  const PlannedStage& whole = plan.replicas[1].stages[0];
  EXPECT_NE(whole.host, first[0].host);
  EXPECT_EQ(first[1].host, first[0].host);
  EXPECT_EQ(used_devices(plan, costs), (std::vector<int>{4, 3}));
  // There is no third host with two b.
  plan.replicas.push_back({{{0, 2, 2}}, 1, 1});
  EXPECT_FALSE(place_stages(plan, costs, StagePlacing::kByStage));
}

TEST(MixedUnits, ADeviceIsInOneStage) {
  const TableStageCosts costs = two_mixed_hosts();
  // a + b: the second a and the first b of host 1; then b itself.
  StagePlan plan{{{{{0, 1, 3, 1, 1, {0}}, {1, 2, 1, 1, 0}}, 1, 1}}};
  EXPECT_EQ(verify_stage_plan(plan, costs).error().message,
            "replica 0, stage 1: device 2 of b is in another stage with other devices: stages of a "
            "replica share all or none");
  plan.replicas[0].stages[1].slot = 1;
  EXPECT_TRUE(verify_stage_plan(plan, costs));
  plan.replicas[0].stages[0].more_slots = {2};
  EXPECT_EQ(verify_stage_plan(plan, costs).error().message,
            "replica 0, stage 0: host 1, devices 2 to 2 of b: there are 4 of 2 a host");
}

// a + b twice, in one host or in two; then the same with one host taken.
TEST(MixedUnits, AreTriedInAllPlaces) {
  const TableStageCosts costs = two_mixed_hosts();
  const auto count = [&](const StagePlan& plan) {
    int places = 0;
    visit_places(plan, costs, [&](const StagePlan& placed) {
      EXPECT_TRUE(verify_stage_plan(placed, costs));
      return ++places > 0;
    });
    return places;
  };
  EXPECT_EQ(count({{{{{0, 1, 3}, {1, 2, 3}}, 1, 1}}}), 2);
  EXPECT_EQ(count({{{{{0, 1, 3}, {1, 2, 3}}, 1, 1}, {{{0, 2, 2}}, 1, 1}}}), 1);
}

// a takes 3 s per layer and sample, b and a + b 6. A second of a is worth 1/6 of a sample of both
// layers, of b 1/12. With a faster unit of both, 1 s per layer, a sample costs 2 (1/6 + 1/12) = 1/2
// instead of 1: seconds are worth twice as much.
TEST(MixedUnits, RatesAreTheirsToo) {
  struct Quick : TableStageCosts {
    explicit Quick(const TableStageCosts& costs) : TableStageCosts(costs) {}
    std::vector<LayerWork> work(std::size_t unit, std::int64_t micro) const override {
      std::vector<LayerWork> work = TableStageCosts::work(unit, micro);
      if (units()[unit].is_mixed())
        for (LayerWork& layer : work)
          layer.forward = layer.forward * 0.5, layer.backward = layer.backward * 0.5;
      return work;
    }
  };
  TableStageCosts costs = two_mixed_hosts();
  const std::vector<double> rates = device_rates(StageSums(costs));
  EXPECT_NEAR(rates[0], 1.0 / 6, 1e-9);
  EXPECT_NEAR(rates[1], 1.0 / 12, 1e-9);
  const Quick quick(costs);
  const std::vector<double> more = device_rates(StageSums(quick));
  EXPECT_NEAR(more[0], 1.0 / 3, 1e-9);
  EXPECT_NEAR(more[1], 1.0 / 6, 1e-9);
}

}  // namespace
}  // namespace motley::search
