#include "motley/cost/links/least_all_reduce.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>

namespace motley::cost {
namespace {

constexpr Transport kEnds{Seconds(1e-5)};

double least_seconds(const LeastAllReduce& least, std::size_t ranks, double bytes) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const auto& [latency, seconds_per_byte] : least.lines(ranks))
    seconds = std::min(seconds, latency + seconds_per_byte * bytes);
  return seconds;
}

double seconds_of(const Network& network, const std::vector<DeviceId>& devices, double bytes,
                  Backend backend) {
  return best_algorithm(network, even_call(Collective::kAllReduce, devices, bytes), kEnds,
                        backend_algorithms(backend, Collective::kAllReduce))
      .time.value;
}

/// Makes nodes with these devices of a kind on one switch of 100 Gbit/s.
cluster::Cluster cluster_of(const std::vector<std::pair<std::string, int>>& nodes) {
  cluster::Cluster cluster;
  for (const auto& [kind, count] : nodes) {
    const NodeId node(static_cast<std::int64_t>(cluster.nodes.size()));
    cluster.nodes.push_back({.name = "n" + std::to_string(node.value)});
    for (int d = 0; d < count; ++d)
      cluster.devices.push_back({.node = node, .name = "d", .kind = kind});
  }
  cluster.links.push_back({{}, BytesPerSecond(12.5e9), Seconds(2e-5), {}});
  return cluster;
}

std::vector<DeviceId> all_of(const cluster::Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    devices.emplace_back(static_cast<std::int64_t>(i));
  return devices;
}

TEST(LeastAllReduce, IsExactOnFullNodesThatAreIdentical) {
  for (const int nodes : {1, 2, 3, 4, 8, 16})
    for (const int each : {1, 2, 4, 8}) {
      if (nodes * each < 2) continue;
      const cluster::Cluster cluster = cluster_of(std::vector<std::pair<std::string, int>>(
          static_cast<std::size_t>(nodes), {"a100-40g", each}));
      const Network network(cluster);
      const std::vector<DeviceId> devices = all_of(cluster);
      const LeastAllReduce least(network, devices, kEnds, Backend::kNccl);
      for (const double bytes : {4.0, 4e6, 4e9})
        EXPECT_NEAR(least_seconds(least, devices.size(), bytes) /
                        seconds_of(network, devices, bytes, Backend::kNccl),
                    1, 1e-9)
            << nodes << " nodes of " << each << ", " << bytes << " bytes";
    }
}

RC_GTEST_PROP(LeastAllReduceProperty, NoGroupTakesLess, ()) {
  const auto nodes = *rc::gen::container<std::vector<std::pair<std::string, int>>>(
      *rc::gen::inRange(1, 8),
      rc::gen::pair(rc::gen::element<std::string>("a100-40g", "t4", "k80", "epyc-7763"),
                    rc::gen::inRange(1, 9)));
  cluster::Cluster cluster = cluster_of(nodes);
  for (cluster::Node& node : cluster.nodes)
    if (*rc::gen::inRange(0, 3) == 0) node.bandwidth = BytesPerSecond(5e9);
  if (nodes.size() > 1 && *rc::gen::arbitrary<bool>())
    cluster.links.push_back({{NodeId(0), NodeId(1)}, BytesPerSecond(5e10), Seconds(1e-6), {}});
  if (*rc::gen::arbitrary<bool>())
    cluster.links.push_back({{NodeId(0)}, BytesPerSecond(1e9), Seconds(5e-6), {}});
  const Network network(cluster);
  const std::vector<DeviceId> devices = all_of(cluster);
  RC_PRE(devices.size() >= 2);
  const Backend backend = *rc::gen::element(Backend::kGloo, Backend::kNccl);
  const LeastAllReduce least(network, devices, kEnds, backend);
  std::vector<DeviceId> group;
  const int odds = *rc::gen::inRange(1, 10);
  for (const DeviceId device : devices)
    if (*rc::gen::inRange(0, 10) < odds) group.push_back(device);
  RC_PRE(group.size() >= 2);
  const double bytes = *rc::gen::element(4.0, 4e4, 4e6, 4e8);
  RC_ASSERT(least_seconds(least, group.size(), bytes) <=
            seconds_of(network, group, bytes, backend) * (1 + 1e-12));
}

}  // namespace
}  // namespace motley::cost
