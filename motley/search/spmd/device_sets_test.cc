#include "motley/search/spmd/device_sets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

/// Nodes with these numbers of t4 behind one link.
cluster::Cluster nodes_of(const std::vector<int>& counts) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"nodes\"\n";
  for (std::size_t i = 0; i < counts.size(); ++i)
    text += fmt::format(
        "[[node]]\nname = \"n{0}\"\nhost = \"h{0}\"\n[[node.device]]\nkind = \"t4\"\ncount = {1}\n",
        i, counts[i]);
  return *cluster::parse_cluster(
      text + "[[link]]\nall = true\nbandwidth = \"1Gbps\"\nlatency = \"20us\"\n", "nodes");
}

std::vector<std::vector<std::int64_t>> places(const std::vector<DeviceSet>& sets) {
  std::vector<std::vector<std::int64_t>> found;
  for (const DeviceSet& set : sets) {
    EXPECT_EQ(set.devices.size(), set.shares.size());
    found.emplace_back();
    for (const DeviceId id : set.devices)
      found.back().push_back(static_cast<std::int64_t>(id.index()));
  }
  return found;
}

std::vector<std::vector<std::int64_t>> find(const cluster::Cluster& cluster,
                                            const std::vector<double>& speeds) {
  return places(find_device_sets(cluster, cluster::all_devices(cluster), speeds));
}

// The kinds and the node come first; a:0 with b:0 and a:1 with b:0 are the same.
TEST(DeviceSets, OfFewDevicesAreAllThatAreUnlike) {
  EXPECT_THAT(find(nodes_of({2, 1}), {4, 4, 1}),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(0, 1), ElementsAre(0, 2)));
  // Four different devices: 1 set of four, 4 of three, 6 of two.
  EXPECT_EQ(find(nodes_of({1, 1, 1, 1}), {1, 2, 3, 4}).size(), 11u);
  // Four identical ones on two nodes: all four, three, a pair on one node, a pair on two.
  EXPECT_EQ(find(nodes_of({2, 2}), {1, 1, 1, 1}).size(), 4u);
}

TEST(DeviceSets, SharesAreSpeeds) {
  const cluster::Cluster cluster = nodes_of({2, 1});
  const auto sets = find_device_sets(cluster, {DeviceId(1), DeviceId(2)}, {3, 2});
  EXPECT_THAT(sets, ElementsAre(DeviceSet{{DeviceId(1), DeviceId(2)}, {3, 2}}));
}

// Nodes of three, two and one device with speeds 2, 3 and 1: the kinds (all, without the slowest,
// the fastest), the nodes, then without a node and without the slowest 1, 2 and 4; the fastest
// first.
TEST(DeviceSets, OfManyDevicesLeaveOutNodesAndTheSlowest) {
  EXPECT_THAT(find(nodes_of({3, 2, 1}), {2, 2, 2, 3, 3, 1}),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4, 5), ElementsAre(0, 1, 2, 3, 4),
                          ElementsAre(3, 4), ElementsAre(0, 1, 2), ElementsAre(1, 2, 3, 4),
                          ElementsAre(3, 4, 5), ElementsAre(0, 1, 2, 5)));
}

TEST(DeviceSets, GrowWithDevicesAsTheirNodesDo) {
  // All, one node, without a node, without 1, 2, 4, ... of 64.
  EXPECT_LE(find(nodes_of(std::vector<int>(8, 8)), std::vector<double>(64, 1)).size(), 9u);
}

TEST(DeviceSets, WithoutOneBeginWithTheSmallestShare) {
  const cluster::Cluster cluster = nodes_of({2, 2});
  const DeviceSet set{cluster::all_devices(cluster), {3, 3, 2, 4}};
  EXPECT_THAT(places(sets_without_one(cluster, set)),
              ElementsAre(ElementsAre(0, 1, 3), ElementsAre(1, 2, 3), ElementsAre(0, 1, 2)));
  EXPECT_TRUE(sets_without_one(cluster, {{DeviceId(0), DeviceId(2)}, {1, 1}}).empty());
}

}  // namespace
}  // namespace motley::search
