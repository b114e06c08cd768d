#include "motley/cluster/edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::cluster {
namespace {

using ::testing::ElementsAre;

// a: two A100s at 6 an hour; b: a T4 and a CPU; c-1: a CPU. A switch of all three, a cable a-b.
constexpr const char* kLab = R"(schema = "motley.cluster/1"
name = "lab"
[[node]]
name = "a"
price_per_hour = 6
bandwidth = "20Gbps"
  [[node.device]]
  kind = "a100-40g"
  count = 2
[[node]]
name = "b"
  [[node.device]]
  kind = "t4"
  [[node.device]]
  kind = "cpu"
  speed = 0.5
  memory = "1GiB"
[[node]]
name = "c-1"
price_per_hour = 1
  [[node.device]]
  kind = "cpu"
[[link]]
between = ["a", "b"]
bandwidth = "10Gbps"
latency = "20us"
[[link]]
between = ["a", "b", "c-1"]
bandwidth = "1Gbps"
capacity = "2Gbps"
)";

Cluster lab() { return parse_cluster(kLab, "lab.toml").value(); }

Edited edited(const char* edit) {
  auto result = edit_cluster(lab(), edit);
  EXPECT_TRUE(result) << result.error().message;
  // A file can express every result: text and value are equivalent.
  EXPECT_EQ(parse_cluster(print_cluster(result->cluster), "edited").value(), result->cluster);
  EXPECT_EQ(result->was.size(), result->cluster.devices.size());
  return *result;
}

std::string fault_of(const char* edit) {
  const auto result = edit_cluster(lab(), edit);
  if (result) return "no error";
  EXPECT_EQ(result.error().kind, ErrorKind::kUsage);
  return result.error().message;
}

std::vector<std::string> names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name + " " + device.kind);
  return names;
}

std::vector<std::int64_t> was(const Edited& edited) {
  std::vector<std::int64_t> ids;
  for (const auto& id : edited.was) ids.push_back(id ? id->value : -1);
  return ids;
}

TEST(EditCluster, OneMoreIsLikeThoseThatAreThere) {
  const Edited more = edited("+1 a100-40g@a");
  EXPECT_THAT(names(more.cluster), ElementsAre("a:0 a100-40g", "a:1 a100-40g", "a:2 a100-40g",
                                               "b:0 t4", "b:1 cpu", "c-1:0 cpu"));
  EXPECT_THAT(was(more), ElementsAre(0, 1, -1, 2, 3, 4));
  EXPECT_EQ(more.cluster.devices[2].memory, more.cluster.devices[1].memory);
  EXPECT_EQ(more.cluster.nodes[0].price_per_hour, 9);  // 6 for two: 3 each
}

TEST(EditCluster, MoreLikeADevice) {
  const Edited more = edited("+2 b:1");
  EXPECT_THAT(names(more.cluster), ElementsAre("a:0 a100-40g", "a:1 a100-40g", "b:0 t4", "b:1 cpu",
                                               "b:2 cpu", "b:3 cpu", "c-1:0 cpu"));
  EXPECT_EQ(more.cluster.devices[5].speed, 0.5);
  EXPECT_EQ(more.cluster.devices[5].memory, Bytes(1 << 30));
  EXPECT_EQ(more.cluster.nodes[1].price_per_hour, std::nullopt);
}

TEST(EditCluster, AKindThatIsNotThereIsOfTheTable) {
  const Edited more = edited("+1 h100-80g@c-1");
  EXPECT_EQ(more.cluster.devices.back().name, "c-1:1");
  EXPECT_EQ(more.cluster.devices.back().memory, Bytes(std::int64_t{80} << 30));
  EXPECT_EQ(edited("+1 a100-40g@0.5@b").cluster.devices[4].kind, "a100-40g@0.5");
}

TEST(EditCluster, WithoutADeviceTheRestIsNumberedAnew) {
  const Edited less = edited("-b:0");
  EXPECT_THAT(names(less.cluster),
              ElementsAre("a:0 a100-40g", "a:1 a100-40g", "b:0 cpu", "c-1:0 cpu"));
  EXPECT_THAT(was(less), ElementsAre(0, 1, 3, 4));
  EXPECT_EQ(edited("-a:1").cluster.nodes[0].price_per_hour, 3);
}

TEST(EditCluster, ANodeWithoutDevicesIsGoneWithItsLinks) {
  const Edited less = edited("-b");
  ASSERT_EQ(less.cluster.nodes.size(), 2U);
  ASSERT_EQ(less.cluster.links.size(), 1U);  // the cable has one end; the switch has two nodes
  EXPECT_THAT(less.cluster.links[0].between, ElementsAre(NodeId(0), NodeId(1)));
  // Without c-1 the switch would join the same nodes as the cable, which a and b preferred before.
  const Edited pair = edited("-c-1");
  ASSERT_EQ(pair.cluster.links.size(), 1U);
  EXPECT_EQ(pair.cluster.links[0].bandwidth, BytesPerSecond(10e9 / 8));
}

TEST(EditCluster, WithoutAKindOrAKindOnANode) {
  EXPECT_THAT(names(edited("-cpu").cluster), ElementsAre("a:0 a100-40g", "a:1 a100-40g", "b:0 t4"));
  EXPECT_THAT(was(edited("-cpu@b")), ElementsAre(0, 1, 2, 4));
}

TEST(EditCluster, MemoryOfADeviceAndOfAKind) {
  EXPECT_EQ(edited("memory c-1:0 24GiB").cluster.devices[4].memory, Bytes(std::int64_t{24} << 30));
  EXPECT_EQ(edited("memory b:1 x1.5").cluster.devices[3].memory, Bytes(3 << 29));
  const Edited all = edited("memory a100-40g 80GiB");
  EXPECT_EQ(all.cluster.devices[0].memory, Bytes(std::int64_t{80} << 30));
  EXPECT_EQ(all.cluster.devices[1].memory, Bytes(std::int64_t{80} << 30));
}

TEST(EditCluster, LinksByTheirNodes) {
  EXPECT_EQ(edited("link b-a x2").cluster.links[0].bandwidth, BytesPerSecond(20e9 / 8));
  const Edited all = edited("link a-b-c-1 x3");
  EXPECT_EQ(all.cluster.links[0].bandwidth, BytesPerSecond(10e9 / 8));
  EXPECT_EQ(all.cluster.links[1].bandwidth, BytesPerSecond(3e9 / 8));
  EXPECT_EQ(all.cluster.links[1].capacity, BytesPerSecond(6e9 / 8));
  EXPECT_EQ(edited("link a-b 100Gbps").cluster.links[0].bandwidth, BytesPerSecond(100e9 / 8));
  const Edited links = edited("links x2");
  EXPECT_EQ(links.cluster.links[1].bandwidth, BytesPerSecond(2e9 / 8));
  EXPECT_EQ(links.cluster.nodes[0].bandwidth, BytesPerSecond(40e9 / 8));
  EXPECT_EQ(links.cluster.links[0].latency, lab().links[0].latency);
}

TEST(EditCluster, WhatNamesNothingSaysWhatThereIs) {
  const std::string there =
      "; devices: a:0, a:1, b:0, b:1, c-1:0; nodes: a, b, c-1; kinds: a100-40g, cpu, t4";
  EXPECT_EQ(fault_of("-c:0"), "'-c:0': the cluster has no 'c:0', did you mean 'a:0'?" + there);
  EXPECT_EQ(fault_of("+1 d:7"), "'+1 d:7': the cluster has no 'd:7'" + there);
  EXPECT_EQ(fault_of("memory q 1GiB"), "'memory q 1GiB': the cluster has no 'q'" + there);
  EXPECT_EQ(fault_of("+1 t4@d"), "'+1 t4@d': the cluster has no node 'd'; nodes: a, b, c-1");
  EXPECT_EQ(fault_of("link a-d x2"),
            "'link a-d x2': the cluster has no link 'a-d', did you mean 'a-b'?; links: a-b, "
            "a-b-c-1");
}

TEST(EditCluster, WhatCannotBe) {
  EXPECT_EQ(edit_cluster(edited("-cpu").cluster, "-t4")->cluster.devices.size(), 2U);
  const Cluster one = edit_cluster(edited("-b").cluster, "-a")->cluster;
  EXPECT_EQ(edit_cluster(one, "-cpu").error().message,
            "'-cpu': no device would be left; devices: c-1:0");
  EXPECT_EQ(fault_of("memory c-1:0 x2"), "'memory c-1:0 x2': c-1:0 has no limit of its memory");
  EXPECT_EQ(fault_of("memory b:1 lots"),
            "'memory b:1 lots': found 'lots', wanted a memory such as 24GiB, or x2");
  EXPECT_EQ(fault_of("link a-b x0"),
            "'link a-b x0': found 'x0', wanted a rate such as 10Gbps, or x2");
  EXPECT_EQ(fault_of("links 1Gbps"), "'links 1Gbps': found '1Gbps', wanted a factor such as x2");
  EXPECT_EQ(fault_of("+9999 t4@b"), "'+9999 t4@b': found 9999 devices, wanted 1 to 1024");
  EXPECT_EQ(fault_of("+1 epyc-7763@b"),
            "'+1 epyc-7763@b': device 'b:2': kind \"epyc-7763\" without memory");
  EXPECT_EQ(fault_of("faster"),
            "'faster': wanted '+1 KIND@NODE', '+1 DEVICE', '-DEVICE', '-NODE', '-KIND', 'memory "
            "DEVICE 24GiB', 'link a-b x2' or 'links x2'");
}

}  // namespace
}  // namespace motley::cluster
