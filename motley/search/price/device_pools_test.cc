#include "motley/search/price/device_pools.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <map>
#include <string>
#include <tuple>

#include "motley/base/random.h"

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

// c's own card is slow, so it differs from a and b although the same link names them.
TEST(DevicePools, ANodesOwnBandwidthTellsItApart) {
  auto cluster = parse(node("a", 1) + node("b", 1) + node("c", 1) +
                       link("between = [\"a\", \"b\", \"c\"]", "10Gbps", "10us"));
  cluster.nodes[2].bandwidth = BytesPerSecond(1e8);
  EXPECT_THAT(pools_of(cluster), ElementsAre(ElementsAre(0, 2, 1), ElementsAre(0, 1)));
}

// A chain of fast links a-b, b-c: the ends do not form a fast pair.
TEST(DevicePools, ChainGivesItsCliques) {
  const auto cluster =
      parse(node("a", 1) + node("b", 1) + node("c", 1) + link("all = true", "1Gbps", "1ms") +
            link("between = [\"a\", \"b\"]", "10Gbps", "10us") +
            link("between = [\"b\", \"c\"]", "10Gbps", "10us"));
  EXPECT_THAT(pools_of(cluster),
              ElementsAre(ElementsAre(0, 2, 1), ElementsAre(0, 1), ElementsAre(1, 2)));
}

TEST(DevicePools, GroupsWithoutCpuAreApart) {
  const auto cluster = parse(node("a", 1) + node("g", 2, "cuda"));
  EXPECT_THAT(pools_of(cluster), ElementsAre(ElementsAre(0, 1, 2), ElementsAre(1, 2)));
}

// One of identical nodes is enough; c, whose devices have another number, has a pool of its own.
TEST(DevicePools, OfPoolsThatAreIdenticalTheFirstIsMade) {
  const auto cluster = parse(node("a", 2) + node("b", 2) + node("c", 2) + node("d", 2) +
                             link("all = true", "1Gbps", "100us"));
  std::vector<DeviceId> devices;
  for (int i = 0; i < 8; ++i) devices.emplace_back(i);
  const DevicePools found = find_device_pools(cluster, devices, {0, 0, 0, 0, 1, 1, 0, 0});
  ASSERT_EQ(found.pools.size(), 3);
  EXPECT_EQ(found.pools[0].size(), 8);
  EXPECT_THAT(found.pools[1], ElementsAre(DeviceId(0), DeviceId(1)));
  EXPECT_THAT(found.pools[2], ElementsAre(DeviceId(4), DeviceId(5)));
}

// 300 nodes of eight: two routes, each with its smallest and its largest group.
TEST(DevicePools, ManyIdenticalNodesAreMeasuredByFour) {
  std::string text = link("all = true", "1Gbps", "100us");
  for (int n = 0; n < 300; ++n) text = node(fmt::format("n{}", n), 8) + text;
  const cluster::Cluster cluster = parse(text);
  std::vector<DeviceId> devices;
  for (int i = 0; i < 2400; ++i) devices.emplace_back(i);
  std::vector<std::size_t> sizes;
  for (const auto& group : groups_to_measure(cluster, devices)) sizes.push_back(group.size());
  EXPECT_THAT(sizes, ElementsAre(2, 2400, 2, 8));
}

TEST(DevicePools, GroupsToMeasureAreSmallestAndLargestOfEachRoute) {
  const auto cluster = parse(node("a", 2) + node("b", 1) + link("all = true", "1Gbps", "100us"));
  const auto groups = groups_to_measure(cluster, {DeviceId(0), DeviceId(1), DeviceId(2)});
  EXPECT_THAT(groups, ElementsAre(ElementsAre(DeviceId(0), DeviceId(2)),
                                  ElementsAre(DeviceId(0), DeviceId(2), DeviceId(1)),
                                  ElementsAre(DeviceId(0), DeviceId(1))));
}

/// Draws two to four nodes of one to three devices; some have a link of their own, or a slow card.
cluster::Cluster drawn_nodes(SplitMix64& random) {
  std::string text;
  const std::size_t nodes = 2 + random.below(3);
  const auto quoted = [](std::size_t n) { return "\"" + std::string(1, char('a' + n)) + "\""; };
  const auto any_link = [&](const std::string& between) {
    return link(between, fmt::format("{}Gbps", 1 << random.below(4)),
                fmt::format("{}us", 10 << random.below(3)));
  };
  for (std::size_t n = 0; n < nodes; ++n)
    text += node(std::string(1, char('a' + n)), 1 + static_cast<int>(random.below(3)),
                 random.below(3) == 0 ? "cpu" : "cuda");
  text += any_link("all = true");
  for (std::size_t n = 0; n < nodes; ++n) {
    if (random.below(4) == 0) text += any_link("between = [" + quoted(n) + "]");
    for (std::size_t m = n + 1; m < nodes; ++m)
      if (random.below(3) == 0)
        text += any_link("between = [" + quoted(n) + ", " + quoted(m) + "]");
  }
  cluster::Cluster cluster = parse(text);
  for (cluster::Node& each : cluster.nodes)
    if (random.below(5) == 0) each.bandwidth = BytesPerSecond(1e8);
  return cluster;
}

/// Returns bandwidth, latency and backend of a group; smaller is worse.
std::tuple<double, double, bool> route_of(const cluster::Cluster& cluster,
                                          const std::vector<DeviceId>& group) {
  const bool has_cpu = std::any_of(group.begin(), group.end(),
                                   [&](DeviceId id) { return cluster.device(id).kind == "cpu"; });
  const auto route = cluster::group_route(cluster, group);
  return route ? std::tuple(route->bandwidth.value, -route->latency.value, !has_cpu)
               : std::tuple(1e30, 0.0, !has_cpu);
}

std::vector<std::vector<DeviceId>> groups_of(const std::vector<DeviceId>& devices) {
  std::vector<std::vector<DeviceId>> groups;
  for (unsigned bits = 0; bits < 1u << devices.size(); ++bits) {
    if (std::popcount(bits) < 2) continue;
    std::vector<DeviceId>& group = groups.emplace_back();
    for (std::size_t i = 0; i < devices.size(); ++i)
      if (bits >> i & 1) group.push_back(devices[i]);
  }
  return groups;
}

/// Nodes of one device each on a fast network with some narrow pairs and some distant ones: "ab".
cluster::Cluster with_bad_pairs(const std::string& nodes, const std::string& cpu,
                                const std::vector<std::string>& narrow,
                                const std::vector<std::string>& far) {
  std::string text;
  for (const char name : nodes)
    text += node(std::string(1, name), 1, cpu.find(name) == std::string::npos ? "cuda" : "cpu");
  text += link("all = true", "10Gbps", "10us");
  const auto between = [](const std::string& pair) {
    return fmt::format("between = [\"{}\", \"{}\"]", pair[0], pair[1]);
  };
  for (const std::string& pair : narrow) text += link(between(pair), "1Gbps", "10us");
  for (const std::string& pair : far) text += link(between(pair), "10Gbps", "1ms");
  return parse(text);
}

// d and f are CPUs, a-c is distant. Of the narrow pairs a-b, a-f and d-e, a-f makes a, c and f
// sufficient. If c-f is distant and a-b and d-e are narrow, two pairs are needed: c-f and d-e.
TEST(DevicePools, TheFewestWithThePoolsRouteComeFirst) {
  EXPECT_THAT(pools_of(with_bad_pairs("abcdef", "df", {"ab", "de", "af"}, {"ac"}))[0],
              ElementsAre(0, 2, 5, 1, 3, 4));
  EXPECT_THAT(pools_of(with_bad_pairs("abcdef", "d", {"ab", "de"}, {"cf"}))[0],
              ElementsAre(2, 3, 4, 5, 0, 1));
}

TEST(DevicePools, EveryGroupIsInAPoolAsGoodAsItself) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SplitMix64 random(seed);
    const cluster::Cluster cluster = drawn_nodes(random);
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < std::min<std::size_t>(cluster.devices.size(), 8); ++i)
      devices.emplace_back(static_cast<std::int64_t>(i));
    const DevicePools found = find_device_pools(cluster, devices);
    ASSERT_TRUE(found.complete);
    for (const auto& group : groups_of(devices)) {
      const bool has_pool = std::any_of(
          found.pools.begin(), found.pools.end(), [&](const std::vector<DeviceId>& pool) {
            return route_of(cluster, pool) == route_of(cluster, group) &&
                   std::all_of(group.begin(), group.end(), [&](DeviceId id) {
                     return std::find(pool.begin(), pool.end(), id) != pool.end();
                   });
          });
      EXPECT_TRUE(has_pool) << "seed " << seed << ", " << group.size() << " from "
                            << group.front().value << " to " << group.back().value;
    }
  }
}

// With two sorts of devices: some pool has as many of each as the group.
TEST(DevicePools, EveryGroupIsLikeOneInAPoolAsGoodAsItself) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SplitMix64 random(seed);
    const cluster::Cluster cluster = drawn_nodes(random);
    std::vector<DeviceId> devices;
    std::vector<int> likeness;
    for (std::size_t i = 0; i < std::min<std::size_t>(cluster.devices.size(), 8); ++i) {
      devices.emplace_back(static_cast<std::int64_t>(i));
      likeness.push_back(static_cast<int>(random.below(2)));
    }
    const auto count = [&](const std::vector<DeviceId>& group, int sort) {
      return std::count_if(group.begin(), group.end(),
                           [&](DeviceId id) { return likeness[id.index()] == sort; });
    };
    const DevicePools found = find_device_pools(cluster, devices, likeness);
    ASSERT_TRUE(found.complete);
    for (const auto& group : groups_of(devices)) {
      const bool has_pool = std::any_of(
          found.pools.begin(), found.pools.end(), [&](const std::vector<DeviceId>& pool) {
            return route_of(cluster, pool) == route_of(cluster, group) &&
                   count(pool, 0) >= count(group, 0) && count(pool, 1) >= count(group, 1);
          });
      EXPECT_TRUE(has_pool) << "seed " << seed << ", " << group.size() << " from "
                            << group.front().value << " to " << group.back().value;
    }
  }
}

// For every route, the fewest and the most ranks are measured; others are interpolated.
TEST(DevicePools, EveryRouteIsMeasuredAtItsFewestAndItsMost) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SplitMix64 random(seed);
    const cluster::Cluster cluster = drawn_nodes(random);
    std::vector<DeviceId> devices;
    for (std::size_t i = 0; i < std::min<std::size_t>(cluster.devices.size(), 8); ++i)
      devices.emplace_back(static_cast<std::int64_t>(i));
    std::map<std::tuple<double, double, bool>, std::pair<std::size_t, std::size_t>> wanted, found;
    const auto note = [&](auto& sizes, const std::vector<DeviceId>& group) {
      auto& [least, most] =
          sizes.try_emplace(route_of(cluster, group), group.size(), group.size()).first->second;
      least = std::min(least, group.size());
      most = std::max(most, group.size());
    };
    for (const auto& group : groups_of(devices)) note(wanted, group);
    for (const auto& group : groups_to_measure(cluster, devices)) note(found, group);
    EXPECT_EQ(found, wanted) << "seed " << seed;
  }
}

// 2^9 maximal cliques: each of 18 nodes has a fast link to all but its twin.
TEST(DevicePools, SaysWhereItLeavesSomeOut) {
  std::string text = link("all = true", "1Gbps", "1ms");
  for (int n = 0; n < 18; ++n) text = node(fmt::format("n{}", n), 1) + text;
  for (int n = 0; n < 18; ++n)
    for (int m = n + 1; m < 18; ++m)
      if (n / 2 != m / 2)
        text += link(fmt::format("between = [\"n{}\", \"n{}\"]", n, m), "10Gbps", "10us");
  const cluster::Cluster cluster = parse(text);
  std::vector<DeviceId> devices;
  for (int i = 0; i < 18; ++i) devices.emplace_back(i);
  const DevicePools found = find_device_pools(cluster, devices);
  EXPECT_FALSE(found.complete);
  EXPECT_GE(found.pools.size(), kMaxPools);
}

}  // namespace
}  // namespace motley::search
