#include "motley/cost/links/network.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace motley::cost {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

cluster::Cluster cluster_of(const std::string& text) {
  auto cluster =
      cluster::parse_cluster("schema = \"motley.cluster/1\"\nname = \"t\"\n" + text, "t");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *cluster;
}

std::string node(const std::string& name, const std::string& device = "kind = \"cpu\"") {
  return "[[node]]\nname = \"" + name + "\"\n[[node.device]]\n" + device + "\n";
}

std::vector<std::string> names(const Network& network, const Path& path) {
  std::vector<std::string> names;
  for (const std::int32_t link : path.links) {
    names.push_back(network.links()[static_cast<std::size_t>(link)].name);
  }
  return names;
}

TEST(Network, ASwitchGivesEachNodeAWayOutAndIn) {
  const Network network(cluster_of(node("a") + node("b") + node("c") +
                                   "[[link]]\nall = true\nbandwidth = 1e9\nlatency = 2e-6\n"));
  ASSERT_EQ(network.links().size(), 6u);
  EXPECT_EQ(network.links()[0], (NetworkLink{"a>all", BytesPerSecond(1e9)}));
  EXPECT_EQ(network.path(DeviceId(0), DeviceId(2)), (Path{{0, 5}, Seconds(2e-6)}));
  EXPECT_EQ(network.path(DeviceId(1), DeviceId(2)), (Path{{2, 5}, Seconds(2e-6)}));
  EXPECT_THAT(names(network, network.path(DeviceId(1), DeviceId(2))),
              ElementsAre("b>all", "all>c"));
  EXPECT_EQ(network.path(DeviceId(1), DeviceId(1)), Path{});
}

TEST(Network, APairsOwnLinkComesBeforeTheSwitch) {
  const Network network(cluster_of(node("a") + node("b") + node("c") +
                                   "[[link]]\nall = true\nbandwidth = 1e9\n"
                                   "[[link]]\nbetween = [\"b\", \"a\"]\nbandwidth = 1e10\n"));
  EXPECT_THAT(names(network, network.path(DeviceId(0), DeviceId(1))), ElementsAre("a>b"));
  EXPECT_THAT(names(network, network.path(DeviceId(1), DeviceId(0))), ElementsAre("b>a"));
  EXPECT_THAT(names(network, network.path(DeviceId(1), DeviceId(2))),
              ElementsAre("b>all", "all>c"));
}

TEST(Network, DevicesOfANodeHavePortsWhereItsLinkSaysSo) {
  const Network network(cluster_of(node("a", "kind = \"cpu\"\ncount = 2") + node("b") +
                                   "[[link]]\nbetween = [\"a\"]\nbandwidth = 5e9\nlatency = 1e-6\n"
                                   "[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = 1e9\n"));
  const Path local = network.path(DeviceId(0), DeviceId(1));
  EXPECT_THAT(names(network, local), ElementsAre("a:0>a", "a>a:1"));
  EXPECT_EQ(local.latency, Seconds(1e-6));
  EXPECT_EQ(network.links()[static_cast<std::size_t>(local.links[0])].capacity,
            BytesPerSecond(5e9));
  // Both devices of a share the pair's link.
  EXPECT_EQ(network.path(DeviceId(0), DeviceId(2)), network.path(DeviceId(1), DeviceId(2)));
}

TEST(Network, SwitchesAndNodesMayHaveALimitOfTheirOwn) {
  // b's card serves its switch connection and its own line to a; the switch serves all.
  const Network network(cluster_of(
      node("a") + "[[node]]\nname = \"b\"\nbandwidth = 5e8\n[[node.device]]\nkind = \"cpu\"\n" +
      node("c", "kind = \"cpu\"\ncount = 2") + "[[link]]\nall = true\nbandwidth = 1e9\n" +
      "capacity = 2e9\n[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = 1e10\n" +
      "[[link]]\nbetween = [\"c\"]\nbandwidth = 4e9\ncapacity = 6e9\n"));
  const auto way = [&](int from, int to) {
    return names(network, network.path(DeviceId(from), DeviceId(to)));
  };
  EXPECT_THAT(way(0, 1), ElementsAre("a>b", "b in"));
  EXPECT_THAT(way(1, 0), ElementsAre("b out", "b>a"));
  EXPECT_THAT(way(1, 2), ElementsAre("b out", "b>all", "all", "all>c"));
  EXPECT_THAT(way(0, 2), ElementsAre("a>all", "all", "all>c"));
  EXPECT_THAT(way(2, 3), ElementsAre("c:0>c", "c", "c>c:1"));
  const std::map<std::string, double> own = {
      {"b out", 5e8}, {"b in", 5e8}, {"all", 2e9}, {"c", 6e9}};
  std::size_t found = 0;
  for (const NetworkLink& link : network.links()) {
    if (!own.contains(link.name)) continue;
    EXPECT_EQ(link.capacity.value, own.at(link.name)) << link.name;
    ++found;
  }
  EXPECT_EQ(found, own.size());
}

TEST(Network, NodesThatMayBeExchangedAreIdentical) {
  // b has its own card, c and d have their own line; a and e have only the switch.
  std::string text;
  for (const char* name : {"a", "b", "c", "d", "e"})
    text += fmt::format("[[node]]\nname = \"{}\"\n{}[[node.device]]\nkind = \"cpu\"\n", name,
                        *name == 'b' ? "bandwidth = 5e8\n" : "");
  const Network network(cluster_of(text + "[[link]]\nall = true\nbandwidth = 1e9\n[[link]]\n" +
                                   "between = [\"c\", \"d\"]\nbandwidth = 1e10\n"));
  EXPECT_THAT(network.likeness(), ElementsAre(0, 1, 2, 3, 0));
}

TEST(Network, NothingLimitsWhereNoLinkIs) {
  const Network network(cluster_of(node("a", "kind = \"cpu\"\ncount = 2") + node("b")));
  EXPECT_THAT(network.links(), IsEmpty());
  EXPECT_EQ(network.path(DeviceId(0), DeviceId(1)), Path{});
  EXPECT_EQ(network.path(DeviceId(0), DeviceId(2)), Path{});
}

TEST(Network, KnownKindsBringTheirPorts) {
  // NVLink 3 of the A100: 300 GB/s each way; PCIe 3.0 x16 of the T4: 15.75 GB/s each way.
  const Network identical(cluster_of(node("a", "kind = \"a100-80g\"\ncount = 2")));
  ASSERT_EQ(identical.links().size(), 4u);
  EXPECT_EQ(identical.links()[0], (NetworkLink{"a:0>a", BytesPerSecond(300e9)}));
  const Network mixed(
      cluster_of("[[node]]\nname = \"a\"\n[[node.device]]\nkind = \"a100-80g\"\n"
                 "[[node.device]]\nkind = \"t4\"\n"));
  ASSERT_EQ(mixed.links().size(), 4u);
  EXPECT_LT(mixed.links()[0].capacity, BytesPerSecond(32e9));
  EXPECT_LT(mixed.links()[2].capacity, BytesPerSecond(16e9));
  EXPECT_GT(mixed.links()[2].capacity, BytesPerSecond(15e9));
}

}  // namespace
}  // namespace motley::cost
