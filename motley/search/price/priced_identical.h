#pragma once

#include "motley/cluster/cluster.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// Gives an unmeasured device the times of a measured one, scaled by speed and threads: twice of
/// either halves a step. Its exchanges are those of the same number of ranks. Example: if a device
/// at 0.8 takes 10 ms for a step, one at 0.4 takes 20 ms.
void price_identical(Costs& costs, const cluster::Cluster& cluster, DeviceId device,
                     DeviceId known);

/// Finds the most similar priced device: same key first (cost/device_keys.h), then same kind, then
/// nearest speed. None if it is no CPU device, or none is priced.
std::optional<DeviceId> find_identical(const Costs& costs, const cluster::Cluster& cluster,
                                       DeviceId device);

}  // namespace motley::search
