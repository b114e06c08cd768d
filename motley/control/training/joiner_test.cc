#include "motley/control/training/joiner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/file.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::HasSubstr;

std::string text(const std::string& more = "", const std::string& name = "d") {
  return "schema = \"motley.cluster/1\"\nname = \"new\"\n[[node]]\nname = \"" + name +
         "\"\nhost = \"there\"\n  [[node.device]]\n  kind = \"cpu\"\n  speed = 0.4\n" + more;
}

constexpr const char* kPair = R"(schema = "motley.cluster/1"
name = "pair"
[[node]]
name = "a"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "c"
  [[node.device]]
  kind = "cpu"
[[link]]
between = ["a", "b"]
bandwidth = "1Gbps"
latency = "10us"
[[link]]
between = ["b", "c"]
bandwidth = "100Mbps"
latency = "5us"
)";

cluster::Cluster cluster_of(const std::string& text) {
  return cluster::parse_cluster(text, "cluster").value();
}

cluster::Route route(const cluster::Cluster& cluster, const char* one, const char* other) {
  return *cluster::group_route(
      cluster, {*cluster::find_device(cluster, one), *cluster::find_device(cluster, other)});
}

TEST(Joiner, IsOneDeviceAndAtMostALinkOfAll) {
  EXPECT_EQ(device_name(parse_joiner(text()).value()), "d:0");
  EXPECT_EQ(parse_joiner(text("  count = 2\n")).error().code, "elastic.newcomer");
  EXPECT_EQ(parse_joiner(text("[[link]]\nbetween = [\"d\"]\nbandwidth = \"1Gbps\"\n")).error().code,
            "elastic.newcomer");
  std::string gpu = text();
  gpu.replace(gpu.find("cpu"), 3, "cuda");
  gpu.erase(gpu.find("  speed"));
  EXPECT_EQ(parse_joiner(gpu).value().devices[0].kind, "cuda");
  gpu.replace(gpu.find("cuda"), 4, "a100-40g");
  EXPECT_EQ(parse_joiner(gpu).error().code, "elastic.newcomer");
  EXPECT_THAT(parse_joiner(text("  memory = \"-3\"\n")).error().message, HasSubstr("newcomer:9"));
  std::string option = text();
  option.replace(option.find("there"), 5, "-oProxyCommand=x");
  EXPECT_FALSE(parse_joiner(option)) << "ssh would take it for an option";
  EXPECT_FALSE(parse_joiner("{"));
}

TEST(Joiner, IsAddedBehindAllOthers) {
  cluster::Cluster cluster = cluster_of(kEmulated);
  const auto words = add_joiner(parse_joiner(text()).value(), cluster);
  ASSERT_TRUE(words);
  EXPECT_EQ(*words, "no link limits it");
  ASSERT_EQ(cluster.devices.size(), 4u);
  EXPECT_EQ(cluster.devices[3].name, "d:0");
  EXPECT_EQ(cluster.node(cluster.devices[3].node).host, "there");
  EXPECT_EQ(cluster_of(cluster::print_cluster(cluster)), cluster) << "it is as a file's";
}

TEST(Joiner, IsJoinedAsTheLinkOfAllSays) {
  cluster::Cluster cluster = cluster_of(kOneIsFar);
  EXPECT_THAT(add_joiner(parse_joiner(text()).value(), cluster).value(),
              HasSubstr("10Gbps, 50us, as the cluster's link of all says"));
  EXPECT_EQ(cluster.links.size(), 1u);
}

TEST(Joiner, IsJoinedByTheLeastOfTheLinksWhereNothingSaysMore) {
  cluster::Cluster cluster = cluster_of(kPair);
  const auto before = route(cluster, "a:0", "b:0");
  EXPECT_THAT(add_joiner(parse_joiner(text()).value(), cluster).value(),
              HasSubstr("100Mbps, 10us, the least of the cluster's links"));
  for (const char* other : {"a:0", "b:0", "c:0"}) {
    EXPECT_EQ(route(cluster, other, "d:0").bandwidth, BytesPerSecond(12.5e6));
    EXPECT_NEAR(route(cluster, other, "d:0").latency.value, 10e-6, 1e-12);
  }
  EXPECT_EQ(route(cluster, "a:0", "b:0").bandwidth, before.bandwidth);
  EXPECT_FALSE(cluster::group_route(cluster, {DeviceId(0), DeviceId(2)})) << "as it was";
}

TEST(Joiner, IsJoinedAsItSaysAndMayBeDescribedAnew) {
  cluster::Cluster cluster = cluster_of(kPair);
  const std::string slow = "[[link]]\nall = true\nbandwidth = \"10Mbps\"\nlatency = \"1ms\"\n";
  ASSERT_TRUE(add_joiner(parse_joiner(text(slow)).value(), cluster));
  EXPECT_EQ(route(cluster, "c:0", "d:0").latency, Seconds(1e-3));
  const std::size_t links = cluster.links.size();
  const std::string quick = "[[link]]\nall = true\nbandwidth = \"10Gbps\"\n";
  ASSERT_TRUE(add_joiner(parse_joiner(text(quick)).value(), cluster));
  EXPECT_EQ(route(cluster, "c:0", "d:0").bandwidth, BytesPerSecond(1.25e9));
  EXPECT_EQ(cluster.links.size(), links);
  EXPECT_EQ(cluster.devices.size(), 4u);
}

TEST(Joiner, ThoseThatHaveComeAreKept) {
  const TemporaryDirectory folder;
  const std::string path = folder.file("newcomers.json");
  EXPECT_EQ(read_joiners(path).value(), std::vector<std::string>());
  const std::vector<std::string> texts = {text(), text("", "e")};
  ASSERT_TRUE(write_file_atomic(path, print_joiners(texts)));
  EXPECT_EQ(read_joiners(path).value(), texts);
  ASSERT_TRUE(write_file_atomic(path, "{\"schema\": \"x\"}"));
  EXPECT_EQ(read_joiners(path).error().code, "elastic.newcomers");
}

}  // namespace
}  // namespace motley::control
