#pragma once

#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// A cluster's devices as pools: nodes that have as many devices of each sort (kind, memory, speed,
/// threads) and are named by the same links are hosts of the same pools, one a sort.
struct ClusterPools {
  std::vector<DevicePool> pools;
  std::vector<std::vector<DeviceId>> devices;  ///< by pool: host after host
};

/// What a device is taken for whose memory neither the cluster nor its kind says.
enum class UnknownMemory { kRefused, kUnlimited };

/// Of some of the devices, one or more. Usage error (search.stages) where there are none, or the
/// memory of one is not known and has to be.
Result<ClusterPools> find_pools(const cluster::Cluster& cluster,
                                const std::vector<DeviceId>& devices, UnknownMemory unknown);

/// Of all devices, whose memory has to be known.
Result<ClusterPools> find_pools(const cluster::Cluster& cluster);

}  // namespace motley::search
