#pragma once

#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::search {

/// Maximal sets of devices that communicate equally well.
///
/// The cost of an exchange depends on the group's size, its route and whether it has a CPU (the
/// backend). A group's route is the worst of its pairs' routes. So for every bandwidth and latency
/// that occurs, the groups at least as good are the cliques of the graph of such pairs, and the
/// maximal ones suffice: a planner that tries the k best members of each pool, for each k, has
/// tried every (route, k). Example: nodes a and b with two devices each, joined by one link: pools
/// {a:0 a:1 b:0 b:1}, {a:0 a:1} and {b:0 b:1}.
struct DevicePools {
  /// Each has at least two members. A pool's first k members have the pool's own route whenever k
  /// devices can have it. Largest pool first.
  std::vector<std::vector<DeviceId>> pools;
  /// False if there are more than kMaxPools and some are left out.
  bool complete = true;
};
inline constexpr std::size_t kMaxPools = 256;

/// Finds the pools. `likeness`: a number per device. Pools equal in these numbers, nodes and routes
/// are interchangeable for the caller, so only the first is made. Empty: all devices differ.
/// O(devices + unlike nodes squared * distinct routes) if joined devices form separate islands, as
/// behind switches. Other topologies need their maximal cliques, limited to kMaxPools.
DevicePools find_device_pools(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices,
                              std::vector<int> likeness = {});

/// Returns the groups whose collectives must be measured before a plan over `devices` can be
/// priced: for every possible route its smallest and its largest group (ranks in between are
/// interpolated). `profile` measures them, `plan` needs them.
std::vector<std::vector<DeviceId>> groups_to_measure(const cluster::Cluster& cluster,
                                                     const std::vector<DeviceId>& devices);

}  // namespace motley::search
