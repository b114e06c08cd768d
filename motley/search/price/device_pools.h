#pragma once

#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::search {

/// Maximal sets of devices that communicate equally well.
///
/// What an exchange costs depends on a group's size, its route and whether a CPU is among it (the
/// backend). The route of a group is the worst of its pairs' routes, so for every bandwidth and
/// latency that occurs, the groups at least as good are the cliques of the graph of pairs that are,
/// and the largest ones are enough: a planner that tries the k best members of each pool, for each
/// k, has tried every (route, k). Example: nodes a and b with two devices each, joined by one link:
/// pools {a:0 a:1 b:0 b:1}, {a:0 a:1} and {b:0 b:1}.
struct DevicePools {
  /// Each has at least two members; the first ones are such that a pool's first k members have the
  /// pool's own route wherever k devices can have it. Largest pool first.
  std::vector<std::vector<DeviceId>> pools;
  /// False when there are more than kMaxPools: then some are left out.
  bool complete = true;
};
inline constexpr std::size_t kMaxPools = 256;

/// `likeness`: a number of each device; where those of a pool have the numbers, nodes and routes of
/// another's, only the first pool is made, as either is as good to who asks. Empty: no two devices
/// are identical. O(devices + unlike nodes squared * distinct routes) where joined devices form
/// separate islands, as they do behind switches; other topologies need their maximal cliques, of
/// which at most kMaxPools are made.
DevicePools find_device_pools(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices,
                              std::vector<int> likeness = {});

/// Groups whose collectives must be measured before a plan over `devices` can be priced: for every
/// route that a group can have, the smallest and the largest group of it (ranks in between are
/// interpolated). Shared by `profile`, which measures them, and `plan`, which needs them.
std::vector<std::vector<DeviceId>> groups_to_measure(const cluster::Cluster& cluster,
                                                     const std::vector<DeviceId>& devices);

}  // namespace motley::search
