#pragma once

#include <cstddef>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::search {

/// Two or more devices with initial shares for a search of shardings.
struct DeviceSet {
  std::vector<DeviceId> devices;
  std::vector<double> shares;
  bool operator==(const DeviceSet&) const = default;
};

/// devices; up to this many every set is searched, as any of them may be the bottleneck
inline constexpr std::size_t kFewDevices = 5;

/// Returns sets worth a search, with shares proportional to speed (by device, in any unit): all;
/// without the slowest kinds, one more kind each time; each node with several devices, as links
/// between nodes may be slow. Then, for up to kFewDevices devices, all others; for more, all
/// without each node and without the slowest 1, 2, 4, ...; the fastest sets first. Of sets equal in
/// speeds, memories, nodes and routes only the first is kept. Deterministic; O(devices^2).
///
/// Example: a:0 and a:1 of speed 4 and b:0 of speed 1: {a:0 a:1 b:0}, {a:0 a:1}, {a:0 b:0}.
std::vector<DeviceSet> find_device_sets(const cluster::Cluster& cluster,
                                        const std::vector<DeviceId>& devices,
                                        const std::vector<double>& speeds);

/// Returns a set of three devices or more without each of its devices, those with the smallest
/// shares first; once for devices of one node with equal shares.
std::vector<DeviceSet> sets_without_one(const cluster::Cluster& cluster, const DeviceSet& set);

}  // namespace motley::search
