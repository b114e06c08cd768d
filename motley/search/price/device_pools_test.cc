#include "motley/search/price/device_pools.h"

#include <gmock/gmock.h>

#include <string>

namespace motley::search {
namespace {

using ::testing::ElementsAre;

cluster::Cluster parse(const std::string& text) {
  auto cluster =
      cluster::parse_cluster("schema = \"motley.cluster/1\"\nname = \"lab\"\n" + text, "lab");
  EXPECT_TRUE(cluster.has_value()) << cluster.error().message;
  return *cluster;
}

std::string node(const std::string& name, int count, const std::string& kind = "cpu") {
  return "[[node]]\nname = \"" + name + "\"\n[[node.device]]\nkind = \"" + kind +
         "\"\ncount = " + std::to_string(count) + "\n";
}

std::string link(const std::string& between, const std::string& bandwidth,
                 const std::string& latency) {
  return "[[link]]\n" + between + "\nbandwidth = \"" + bandwidth + "\"\nlatency = \"" + latency +
         "\"\n";
}

std::vector<std::vector<int>> pools_of(const cluster::Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    devices.emplace_back(static_cast<std::int64_t>(i));
  }
  const DevicePools found = find_device_pools(cluster, devices);
  EXPECT_TRUE(found.complete);
  std::vector<std::vector<int>> pools;
  for (const auto& pool : found.pools) {
    auto& list = pools.emplace_back();
    for (const DeviceId device : pool) list.push_back(device.value);
  }
  return pools;
}

TEST(DevicePools, OneNodeIsOnePool) {
  EXPECT_THAT(pools_of(parse(node("a", 3))), ElementsAre(ElementsAre(0, 1, 2)));
}

TEST(DevicePools, OneDeviceHasNone) { EXPECT_TRUE(pools_of(parse(node("a", 1))).empty()); }

// The pair a:0 b:0 (devices 0 and 2) crosses the link and comes first in the pool of all.
TEST(DevicePools, NodesBehindALinkAreIslands) {
  const auto cluster = parse(node("a", 2) + node("b", 2) + link("all = true", "1Gbps", "100us"));
  EXPECT_THAT(pools_of(cluster),
              ElementsAre(ElementsAre(0, 2, 1, 3), ElementsAre(0, 1), ElementsAre(2, 3)));
}

// a-b is fast, c hangs on a slow link: all three, and the fast pair.
TEST(DevicePools, FastPairInASlowNetwork) {
  const auto cluster =
      parse(node("a", 1) + node("b", 1) + node("c", 1) + link("all = true", "1Gbps", "1ms") +
            link("between = [\"a\", \"b\"]", "10Gbps", "10us"));
  EXPECT_THAT(pools_of(cluster), ElementsAre(ElementsAre(0, 2, 1), ElementsAre(0, 1)));
}

// The same, as c's own card is slow: it is not like a and b, though the same link names them.
TEST(DevicePools, ANodesOwnBandwidthTellsItApart) {
  auto cluster = parse(node("a", 1) + node("b", 1) + node("c", 1) +
                       link("between = [\"a\", \"b\", \"c\"]", "10Gbps", "10us"));
  cluster.nodes[2].bandwidth = BytesPerSecond(1e8);
  EXPECT_THAT(pools_of(cluster), ElementsAre(ElementsAre(0, 2, 1), ElementsAre(0, 1)));
}

// A chain of fast links a-b, b-c: neither end may be with the other.
TEST(DevicePools, ChainGivesItsCliques) {
  const auto cluster =
      parse(node("a", 1) + node("b", 1) + node("c", 1) + link("all = true", "1Gbps", "1ms") +
            link("between = [\"a\", \"b\"]", "10Gbps", "10us") +
            link("between = [\"b\", \"c\"]", "10Gbps", "10us"));
  EXPECT_THAT(pools_of(cluster),
              ElementsAre(ElementsAre(0, 2, 1), ElementsAre(0, 1), ElementsAre(1, 2)));
}

// Devices of another kind than cpu exchange over another backend when they are among themselves.
TEST(DevicePools, GroupsWithoutCpuAreApart) {
  const auto cluster = parse(node("a", 1) + node("g", 2, "cuda"));
  EXPECT_THAT(pools_of(cluster), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(1, 2)));
}

TEST(DevicePools, GroupsToMeasureAreSmallestAndLargestOfEachRoute) {
  const auto cluster = parse(node("a", 2) + node("b", 1) + link("all = true", "1Gbps", "100us"));
  const auto groups = groups_to_measure(cluster, {DeviceId(0), DeviceId(1), DeviceId(2)});
  EXPECT_THAT(groups, ElementsAre(ElementsAre(DeviceId(0), DeviceId(2)),
                                  ElementsAre(DeviceId(0), DeviceId(2), DeviceId(1)),
                                  ElementsAre(DeviceId(0), DeviceId(1))));
}

}  // namespace
}  // namespace motley::search
