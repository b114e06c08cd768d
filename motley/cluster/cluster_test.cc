#include "motley/cluster/cluster.h"

#include <gtest/gtest.h>

#include "motley/base/text.h"
#include "motley/cluster/kinds.h"

namespace motley::cluster {
namespace {

// Nodes a (2 devices), b (1), c (1) and the given links.
Cluster make(const std::string& links) {
  const auto cluster = parse_cluster(R"(
schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
device = [ { kind = "cpu", count = 2 } ]
[[node]]
name = "b"
device = [ { kind = "cpu" } ]
[[node]]
name = "c"
device = [ { kind = "cpu" } ]
)" + links,
                                     "lab.toml");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *cluster;
}

std::string link(const std::string& joins, int bandwidth, int latency) {
  return "[[link]]\n" + joins + "\nbandwidth = " + std::to_string(bandwidth) +
         "\nlatency = " + std::to_string(latency) + "\n";
}

struct Expected {
  double bandwidth, latency;
};
void expect_route(const Cluster& cluster, const std::vector<int>& devices, Expected expected) {
  std::vector<DeviceId> ids;
  for (const int device : devices) ids.emplace_back(device);
  const auto route = group_route(cluster, ids);
  ASSERT_TRUE(route);
  EXPECT_EQ(route->bandwidth.value, expected.bandwidth);
  EXPECT_EQ(route->latency.value, expected.latency);
}

TEST(FindDevice, FindsByNameOrSuggests) {
  const Cluster cluster = make("");
  EXPECT_EQ(find_device(cluster, "b:0").value(), DeviceId(2));
  const auto missing = find_device(cluster, "a:3");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().message, "cluster 'lab' has no device 'a:3', did you mean 'a:0'?");
  EXPECT_EQ(missing.error().code, "cluster.unknown-device");
}

TEST(AreIdentical, DevicesOfOneKindModelAndNumberOfThreads) {
  Cluster cluster = make("");
  const std::vector<DeviceId> all = {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)};
  EXPECT_TRUE(are_identical(cluster, all));
  cluster.devices[3].threads = 2;
  EXPECT_FALSE(are_identical(cluster, all));
  EXPECT_TRUE(are_identical(cluster, {DeviceId(0), DeviceId(1), DeviceId(2)}));
  cluster.devices[3].threads = 1;
  cluster.devices[2].model = "EPYC";
  EXPECT_FALSE(are_identical(cluster, all));
  for (Device& device : cluster.devices) device.taken_for = "EPYC";  // fills in missing models
  EXPECT_TRUE(are_identical(cluster, all));
  cluster.devices[1].kind = "cuda";
  EXPECT_FALSE(are_identical(cluster, all));
}

TEST(GroupRoute, CapacityAndANodesOwnBandwidthLimit) {
  Cluster cluster = make(link("all = true", 100, 1) + "capacity = 60\n" +
                         link("between = [\"a\"]", 50, 1) + "capacity = 30\n");
  expect_route(cluster, {0, 2}, {60, 1});
  expect_route(cluster, {0, 2, 3}, {60, 1});
  expect_route(cluster, {0, 1}, {30, 1});
  cluster.nodes[2].bandwidth = BytesPerSecond(10);
  expect_route(cluster, {0, 2}, {60, 1});
  expect_route(cluster, {2, 3}, {10, 1});
  // It also counts without a link, but not inside the node.
  cluster.links.clear();
  expect_route(cluster, {2, 3}, {10, 0});
  cluster.nodes[0].bandwidth = BytesPerSecond(10);
  EXPECT_FALSE(group_route(cluster, {DeviceId(0), DeviceId(1)}));
}

TEST(GroupRoute, NothingLimitsOneNodeOrUnlinkedNodes) {
  const Cluster cluster = make(link("all = true", 100, 1));
  EXPECT_FALSE(group_route(cluster, {}));
  EXPECT_FALSE(group_route(cluster, {DeviceId(0)}));
  EXPECT_FALSE(group_route(cluster, {DeviceId(0), DeviceId(1)}));
  EXPECT_FALSE(
      group_route(make(link("between = [\"a\", \"b\"]", 100, 1)), {DeviceId(2), DeviceId(3)}));
}

TEST(GroupRoute, ALinkOfOneNodeLimitsTheDevicesInside) {
  const Cluster cluster = make(link("between = [\"a\"]", 50, 2) + link("all = true", 100, 1));
  expect_route(cluster, {0, 1}, {50, 2});
  // A single device of a does not cross a's own link.
  expect_route(cluster, {0, 2}, {100, 1});
  // Both devices do: bandwidth 50, latency 2.
  expect_route(cluster, {0, 1, 2}, {50, 2});
  EXPECT_FALSE(group_route(cluster, {DeviceId(0), DeviceId(0)}));
}

TEST(GroupRoute, APairsOwnLinkComesBeforeTheSwitch) {
  // a-b is faster than the switch, b-c slower with less latency.
  const Cluster cluster =
      make(link("all = true", 100, 3) + link("between = [\"b\", \"a\"]", 400, 1) +
           link("between = [\"b\", \"c\"]", 10, 2));
  expect_route(cluster, {0, 2}, {400, 1});
  expect_route(cluster, {2, 3}, {10, 2});
  expect_route(cluster, {0, 3}, {100, 3});
  // a-b 400/1, b-c 10/2, a-c 100/3: least bandwidth 10, largest latency 3.
  expect_route(cluster, {0, 2, 3}, {10, 3});
}

TEST(GroupRoute, OfEqualLinksTheFastestIsUsed) {
  const Cluster cluster =
      make(link("all = true", 100, 3) + link("between = [\"a\", \"b\", \"c\"]", 200, 5));
  // A list that names the nodes comes before `all`, however many it names.
  expect_route(cluster, {0, 2}, {200, 5});
}

TEST(VerifyCluster, ReportsWhatTheParserCannotProduce) {
  Cluster cluster = make("");
  cluster.devices[1].name = "a:7";
  cluster.devices[2].node = NodeId(9);
  cluster.devices[3].kind = "rtx4090";
  cluster.nodes[1].name = "b b";
  cluster.nodes[2].host = "-oProxy";
  cluster.links.push_back({{NodeId(4)}, BytesPerSecond(1), Seconds(-1)});
  cluster.links.push_back({{}, BytesPerSecond(1), Seconds(0)});
  cluster.links.push_back({{}, BytesPerSecond(1), Seconds(0)});
  const auto result = verify_cluster(cluster, "made");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, "cluster.invalid");
  EXPECT_EQ(result.error().message,
            "made: node 'b b': name \"b b\", wanted 1 to 64 letters, digits, '_', '.' or '-'\n"
            "made: node 'b b': no [[node.device]], wanted at least one\n"
            "made: node 'c': host \"-oProxy\", wanted a host name or address\n"
            "made: device 'a:7': has index 1 and local index 1, wanted 'a:1' with 1 and 1\n"
            "made: device 'b:0': node number 9 does not exist\n"
            "made: device 'c:0': comes after a device of a later node\n"
            "made: device 'c:0': kind \"rtx4090\" without memory\n"
            "made: link 0: node number 4 does not exist\n"
            "made: link 0: latency of -1.0 s, wanted >= 0\n"
            "made: link 1: joins the same nodes as link 0\n"
            "made: link 2: joins the same nodes as link 0");
}

TEST(VerifyCluster, NamesTheKnownKinds) {
  Cluster cluster = make("");
  cluster.devices[0].kind = "rtx409";
  cluster.devices[0].memory = Bytes(1);
  cluster.devices[1].local_index = 0;
  const auto result = verify_cluster(cluster, "made");
  ASSERT_FALSE(result);
  const std::vector<std::string> kinds = known_kinds();
  EXPECT_EQ(result.error().message,
            "made: device 'a:0': unknown kind \"rtx409\", did you mean 'rtx4090'?; wanted one of " +
                join(kinds, ", "));
}

TEST(ClusterHash, FollowsTheContents) {
  Cluster cluster = make("");
  const std::string before = cluster_hash(cluster);
  EXPECT_EQ(before.size(), 16U);
  cluster.devices[0].speed = 0.5;
  EXPECT_NE(cluster_hash(cluster), before);
}

// ---- shared GPUs

TEST(SharedGpus, HaveOneUuidOrOneHostAndPlace) {
  Cluster cluster;
  cluster.nodes = {{.name = "a", .host = "h"}, {.name = "b", .host = "h"}, {.name = "c"}};
  const auto gpu = [](int node, int local_index, const char* uuid) {
    Device device{.node = NodeId(node), .kind = "cuda", .local_index = local_index};
    device.memory = Bytes(1000);
    device.uuid = uuid;
    return device;
  };
  cluster.devices = {gpu(0, 0, ""),      gpu(0, 1, "GPU-x"), gpu(1, 0, ""),     gpu(1, 1, "GPU-y"),
                     gpu(1, 2, "GPU-x"), gpu(2, 0, "GPU-y"), gpu(0, 2, "GPU-x")};
  std::vector<DeviceId> all;
  for (int i = 0; i < 7; ++i) all.push_back(DeviceId(i));
  using Ids = std::vector<DeviceId>;
  EXPECT_EQ(find_shared_gpus(cluster, all),
            (std::vector<Ids>{{DeviceId(0), DeviceId(2)},
                              {DeviceId(1), DeviceId(4), DeviceId(6)},
                              {DeviceId(3), DeviceId(5)}}));
  part_shared_memory(cluster, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3), DeviceId(4)});
  std::vector<std::int64_t> parts;
  for (const Device& device : cluster.devices) parts.push_back(device.memory->value);
  // The last device is unused: two share x.
  EXPECT_EQ(parts, (std::vector<std::int64_t>{500, 500, 500, 1000, 500, 1000, 1000}));
}

TEST(SharedGpus, WithoutALimitHaveNone) {
  Cluster cluster;
  cluster.nodes = {{.name = "a"}, {.name = "b"}};
  cluster.devices = {{.node = NodeId(0), .kind = "cuda"},
                     {.node = NodeId(1), .kind = "cuda"},
                     {.node = NodeId(0), .kind = "cpu"},
                     {.node = NodeId(1), .kind = "cpu"}};
  part_shared_memory(cluster, {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)});
  EXPECT_FALSE(cluster.devices[0].memory);
}

}  // namespace
}  // namespace motley::cluster
