#include "motley/search/stages/costs/layer_stage_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/search/stages/pipeline_stages.h"
#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Two layers of 1 s forward, 2 s backward and 0.5 s update per sample, on kind `a` at degrees 1
/// and 2, on `b` only at degree 1 and micro-batches 1 and 2.
cost::LayerProfile two_layers() {
  cost::LayerProfile profile{.model = "m"};
  for (const auto& [kind, degree, most] :
       {std::tuple("a", 1, 4), std::tuple("a", 2, 4), std::tuple("b", 1, 2)})
    for (std::int64_t micro = 1; micro <= most; micro *= 2) {
      const auto samples = static_cast<double>(micro);
      profile.times[kind][degree][micro].assign(
          2, {Seconds(samples), Seconds(2 * samples), Seconds(0.5)});
    }
  profile.sizes[1].assign(2, {1, Bytes(4), Bytes(16), Bytes(10), Bytes(8)});
  profile.sizes[2].assign(2, {1, Bytes(2), Bytes(8), Bytes(5), Bytes(8)});
  return profile;
}

cost::RateCurves constant_rate(int devices, double rate) {
  return {{devices, {{0, 0, rate}, BytesPerSecond(rate * 1e9)}}};
}

TEST(LayerStageCosts, SaysWhatIsLeftOut) {
  const std::vector<DevicePool> pools = {{"a", "", 3, 1, Bytes(1000), 0},
                                         {"b", "", 1, 1, Bytes(1000), 3},
                                         {"c", "", 2, 1, Bytes(1000), 4}};
  const auto costs = LayerStageCosts::make(two_layers(), pools, fitted_hops({}, pools));
  ASSERT_TRUE(costs) << costs.error().message;
  EXPECT_THAT(costs->units(), ElementsAre(StageUnit{0, 1}, StageUnit{1, 1}));
  EXPECT_THAT(costs->micro_batches(), ElementsAre(1, 2, 4));
  EXPECT_TRUE(costs->knows(1, 4));
  EXPECT_FALSE(costs->knows(1, 5));
  EXPECT_THAT(
      costs->notes(),
      ElementsAre("a at degree 2 is left out: a host has 1",
                  "2 devices of c stay idle: m was not profiled on them",
                  "b at degree 1 was not profiled with micro-batches of 4: those up to 4 are "
                  "interpolated or extrapolated, larger ones left out"));
  const std::vector<DevicePool> strangers = {{"c", "", 2, 1, Bytes(1000), 0}};
  EXPECT_EQ(LayerStageCosts::make(two_layers(), strangers, nullptr).error().message,
            "no device of the cluster is of a kind that m was profiled on");
}

// A recomputing unit repeats forward passes and keeps a layer's input: nothing for the first layer
// (its input is the batch), 8 bytes for the second.
TEST(LayerStageCosts, RecomputingUnitsKeepLess) {
  const std::vector<DevicePool> pools = {{"b", "", 1, 1, Bytes(1000), 0}};
  const auto costs =
      LayerStageCosts::make(two_layers(), pools, fitted_hops({}, pools), {.may_recompute = true});
  ASSERT_TRUE(costs);
  ASSERT_EQ(costs->units().size(), 2u);
  EXPECT_EQ(costs->work(1, 1)[0].backward, Seconds(3));
  EXPECT_EQ(costs->bytes(0)[1].kept, Bytes(10));
  EXPECT_EQ(costs->bytes(1)[0].kept, Bytes(0));
  EXPECT_EQ(costs->bytes(1)[1].kept, Bytes(8));
}

// Two parts of 4 MB in all at 2 GB/s together take 2 ms. The receivers then exchange the missing
// halves inside their host, 4 MB at 4 GB/s together: 1 ms. If each member sends the whole, it takes
// twice as long, without the exchange.
TEST(FittedHops, SendsEachPartOnce) {
  const std::vector<DevicePool> pools = {{"a", "", 4, 2, Bytes(1000), 0}};
  cost::StageNetwork network;
  network.between[{"a", "a"}] = constant_rate(2, 2);
  network.inside["a"] = constant_rate(2, 4);
  const auto costs = LayerStageCosts::make(two_layers(), pools, fitted_hops(network, pools));
  ASSERT_TRUE(costs);
  const auto hop = costs->hop({0, 2}, {0, 2}, HopReach::kOtherHost, Bytes(4'000'000));
  ASSERT_TRUE(hop);
  EXPECT_NEAR(hop->rate.value, 2e9, 1);
  EXPECT_NEAR(hop->delay.value, 1e-3, 1e-9);
  const auto whole = LayerStageCosts::make(two_layers(), pools, fitted_hops(network, pools),
                                           {.sends_whole = true});
  EXPECT_EQ(whole->bytes(1)[0].output, Bytes(16));
  EXPECT_EQ(whole->hop({0, 2}, {0, 2}, HopReach::kOtherHost, Bytes(8'000'000))->delay, Seconds(0));
}

TEST(FittedHops, FewerDevicesThanMeasuredGetTheirShare) {
  const std::vector<DevicePool> pools = {{"a", "", 4, 4, Bytes(1000), 0},
                                         {"b", "", 4, 4, Bytes(1000), 1}};
  cost::StageNetwork network;
  network.between[{"a", "b"}] = constant_rate(4, 2);
  const auto hops = fitted_hops(network, pools);
  EXPECT_NEAR(hops->hop({0, 1}, {1, 1}, HopReach::kOtherHost, Bytes(4'000'000))->rate.value, 0.5e9,
              1);
  EXPECT_FALSE(hops->hop({1, 1}, {0, 1}, HopReach::kOtherHost, Bytes(1)));
}

TEST(ToStagePlan, TakesPlansOfSeveralKinds) {
  cost::PipelinePlan plan;
  plan.micro_batch = 1;
  plan.micro_batches = 2;
  plan.stages = {{0, 1, {{"a", 2}, {"b", 1}}}, {1, 2, {{"b", 1}, {"a", 2}}}};
  const std::vector<DevicePool> pools = pools_of(plan, 4);
  ASSERT_EQ(pools.size(), 2u);
  cost::LayerProfile profile = two_layers();
  profile.tied = {0, 1};
  cost::StageNetwork network;
  for (const char* from : {"a", "b"})
    for (const char* to : {"a", "b"}) network.between[{from, to}] = constant_rate(4, 1);
  network.inside["a"] = network.inside["b"] = constant_rate(2, 10);
  const auto costs =
      LayerStageCosts::make(profile, pools, fitted_hops(network, pools), blocking_runtime());
  ASSERT_TRUE(costs) << costs.error().message;
  const auto stages = to_stage_plan(plan, *costs);
  ASSERT_TRUE(stages) << stages.error().message;
  const StageSums sums(*costs);
  const auto price = StageEvaluator(sums).price(*stages);
  ASSERT_TRUE(price) << price.error().message;
  // 3 s per stage and micro-batch: (2 + 1) * 3, then sums and 0.5 s of update.
  EXPECT_NEAR(price->step.value, 9.5, 0.1);
  plan.stages[0].replicas[0].tensor_parallel = 8;
  EXPECT_EQ(to_stage_plan(plan, *costs).error().message,
            "a at tensor parallelism 8 was not profiled, or its bytes are not known");
}

// Nodes with the same devices and links are hosts of the same pools, one pool per kind.
TEST(FindPools, PutsIdenticalNodesTogether) {
  const auto cluster = cluster::parse_cluster(R"(schema = "motley.cluster/1"
name = "c"
[[node]]
name = "x"
[[node.device]]
kind = "l4"
count = 2
[[node.device]]
kind = "p40"
memory = "23GiB"
[[node]]
name = "y"
[[node.device]]
kind = "l4"
count = 2
[[node.device]]
kind = "p40"
memory = "23GiB"
[[node]]
name = "z"
[[node.device]]
kind = "l4"
count = 2
[[link]]
all = true
bandwidth = "8Gbps"
latency = "10us"
)",
                                              "c");
  ASSERT_TRUE(cluster) << cluster.error().message;
  const auto found = find_pools(*cluster);
  ASSERT_TRUE(found) << found.error().message;
  constexpr std::int64_t kGiB = 1 << 30;
  EXPECT_THAT(found->pools, ElementsAre(DevicePool{"l4", "x to y", 4, 2, Bytes(24 * kGiB), 0},
                                        DevicePool{"p40", "", 2, 1, Bytes(23 * kGiB), 0},
                                        DevicePool{"l4", "z", 2, 2, Bytes(24 * kGiB), 2}));
  const auto hops = cluster_hops(*cluster, *found);
  EXPECT_EQ(hops->hop({0, 1}, {2, 1}, HopReach::kOtherHost, Bytes(1))->rate.value, 1e9);
  EXPECT_EQ(hops->host_rate(0).value, 1e9);
}

}  // namespace
}  // namespace motley::search
