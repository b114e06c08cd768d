#pragma once

#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// A cluster's devices as pools. Nodes with the same number of devices of each sort (kind, memory,
/// speed, threads) and named by the same links are hosts of the same pools, one per sort.
struct ClusterPools {
  std::vector<DevicePool> pools;
  std::vector<std::vector<DeviceId>> devices;  ///< by pool: host after host
};

/// Handling of devices whose memory neither the cluster nor their kind states.
enum class UnknownMemory { kRefused, kUnlimited };

/// Returns the pools of one or more devices. Usage error (search.stages) if there are none, or a
/// required memory is unknown.
Result<ClusterPools> find_pools(const cluster::Cluster& cluster,
                                const std::vector<DeviceId>& devices, UnknownMemory unknown);

/// Returns the pools of all devices; their memory must be known.
Result<ClusterPools> find_pools(const cluster::Cluster& cluster);

}  // namespace motley::search
