#include "motley/search/layers/layer_tables.h"

#include <gmock/gmock.h>

#include <utility>

namespace motley::search {
namespace {

using ::testing::ElementsAre;

cluster::Cluster two_nodes(const std::string& first, const std::string& second) {
  auto cluster = cluster::parse_cluster(
      "schema = \"motley.cluster/1\"\nname = \"two\"\n"
      "[[node]]\nname = \"a\"\nhost = \"h1\"\n[[node.device]]\nkind = \"" +
          first + "\"\n[[node]]\nname = \"b\"\nhost = \"h2\"\n[[node.device]]\nkind = \"" + second +
          "\"\n[[link]]\nall = true\nbandwidth = \"8Gbps\"\n",
      "two");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *std::move(cluster);
}
const std::vector<DeviceId> kBoth{DeviceId(0), DeviceId(1)};

cost::LayerTime layer(double forward, double backward, double update) {
  return {Seconds(forward), Seconds(backward), Seconds(update)};
}

/// Two layers, on t4 at micro-batches of 1 and 4, on a100-40g only with degree 2.
cost::LayerProfile two_layers_profile() {
  cost::LayerProfile profile;
  profile.model = "small";
  profile.times["t4"][1] = {{1, {layer(1, 2, 0.25), layer(2, 4, 0.5)}},
                            {4, {layer(3, 6, 0.5), layer(5, 10, 0.5)}}};
  profile.times["a100-40g"][2] = profile.times["t4"][1];
  profile.sizes[1] = {{0, Bytes(600), Bytes(2400), Bytes(100), Bytes(4)},
                      {0, Bytes(400), Bytes(1600), Bytes(300), Bytes(4)}};
  profile.sizes[2] = profile.sizes[1];
  return profile;
}

TEST(LayerTables, SumTheLayersUp) {
  const LayerModel model = make_layer_model(two_layers_profile()).value();
  cluster::Cluster cluster = two_nodes("t4", "t4");
  cluster.devices[1].speed = 0.5;
  const auto costs = load_layer_costs(model, cluster, {.devices = kBoth});
  ASSERT_TRUE(costs) << costs.error().message;
  // Forward and backward: 1 + 2 + 2 + 4 s for one sample, 3 + 6 + 5 + 10 s for four; updates of
  // 0.75 and 1 s. Linear in between, and beyond up to twice the samples.
  for (const cost::ProfileCost::DeviceTimes& device :
       {costs->devices.at("a:0"), costs->devices.at("b:0")})
    for (const auto& table : {device.alone.table, device.shared.table})
      for (const auto& [samples, seconds] :
           {std::pair(1, 9.75), {4, 25}, {2, 14.8333}, {8, 45.3333}})
        EXPECT_NEAR(table->total(samples).value, seconds, 1e-4) << samples;
  EXPECT_EQ(costs->devices.at("b:0").table_speed(), 0.5);
  // Scratch: a layer's backward pass needs a copy of what it kept, 400 bytes per sample for both
  // layers, and a number in each of two rows of split values (none here).
  std::int64_t scratch = 0;
  for (const Bytes bytes : costs->devices.at("a:0").alone.table->scratch_bytes(4))
    scratch += bytes.value;
  EXPECT_EQ(scratch, 4 * (400 + 2 * 2 * 4));
}

TEST(LayerTables, DevicesOfOtherKindsAreLeftOut) {
  const auto found =
      find_layer_devices(two_layers_profile(), two_nodes("a100-40g", "t4"), kBoth).value();
  EXPECT_THAT(found.devices, ElementsAre(DeviceId(1)));
  EXPECT_EQ(found.most_samples, 8);  // twice the profiled micro-batch
}

TEST(LayerTables, TheKindWithTheLeastSaysHowManySamplesThereMayBe) {
  cost::LayerProfile profile = two_layers_profile();
  profile.times["v100-16g"][1] = {{1, {layer(1, 1, 1), layer(1, 1, 1)}}};
  EXPECT_EQ(find_layer_devices(profile, two_nodes("t4", "v100-16g"), kBoth)->most_samples, 2);
}

TEST(LayerTables, NameTheKindsThatTheProfileHas) {
  const auto found = find_layer_devices(two_layers_profile(), two_nodes("a100-40g", "a10"), kBoth);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().message,
            "no device of the cluster is of a kind that the layer profile of small has without "
            "tensor parallelism: t4");
}

}  // namespace
}  // namespace motley::search
