#pragma once

#include <optional>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/run/job.h"

namespace motley::control {

/// Describes a device to its worker; this machine's host is "". `route`: of emulated links.
run::WorkerDevice worker_device(const cluster::Cluster& cluster, DeviceId device,
                                const std::optional<cluster::Route>& route = std::nullopt);

/// Are the devices on this machine, so that all links between them are emulated?
bool are_all_here(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices);

/// Returns the emulated route of a group; none: its links are real.
std::optional<cluster::Route> emulated_route(const cluster::Cluster& cluster,
                                             const std::vector<DeviceId>& devices);

}  // namespace motley::control
