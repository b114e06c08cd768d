#pragma once

#include "motley/cluster/cluster.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// Gives a device that nobody has measured the times of one that somebody has, by their speeds and
/// threads: at twice of either a step takes half as long. Its exchanges are those of as many ranks.
/// Example: of a device at 0.8 that does a step in 10 ms, one at 0.4 is taken to need 20 ms.
void price_identical(Costs& costs, const cluster::Cluster& cluster, DeviceId device,
                     DeviceId known);

/// Of the priced devices the one that is most like it: of its key (cost/device_keys.h) before
/// others, and of its kind; then of the nearest speed. None: no CPU device, or no price.
std::optional<DeviceId> find_identical(const Costs& costs, const cluster::Cluster& cluster,
                                       DeviceId device);

}  // namespace motley::search
