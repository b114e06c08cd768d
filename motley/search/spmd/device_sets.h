#pragma once

#include <cstddef>
#include <vector>

#include "motley/cluster/cluster.h"

namespace motley::search {

/// Devices that a search of shardings begins with, two or more, and shares of them.
struct DeviceSet {
  std::vector<DeviceId> devices;
  std::vector<double> shares;
  bool operator==(const DeviceSet&) const = default;
};

/// Of so many devices every set is worth a search: what a plan over all of them waits for may be
/// any of them.
inline constexpr std::size_t kFewDevices = 5;

/// Sets that are worth a search, with shares in proportion to speed (by device, in any unit): all;
/// without the slowest kinds, one kind more each time; each node that has several devices, where
/// links between nodes may be slow. Then of up to kFewDevices all others, of more all without each
/// node and without the slowest 1, 2, 4, ... of them; the fastest sets first. Of sets that are
/// alike in speeds, memories, nodes and ways between them only the first. Deterministic;
/// O(devices^2).
///
/// Example: a:0 and a:1 of speed 4 and b:0 of speed 1: {a:0 a:1 b:0}, {a:0 a:1}, {a:0 b:0}.
std::vector<DeviceSet> find_device_sets(const cluster::Cluster& cluster,
                                        const std::vector<DeviceId>& devices,
                                        const std::vector<double>& speeds);

/// A set of three devices or more without each of its devices in turn, those with the smallest
/// shares first; of devices of one node with equal shares one.
std::vector<DeviceSet> sets_without_one(const cluster::Cluster& cluster, const DeviceSet& set);

}  // namespace motley::search
