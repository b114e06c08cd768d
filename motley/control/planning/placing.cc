#include "motley/control/planning/placing.h"

#include <algorithm>

#include "motley/run/hosts/here.h"

namespace motley::control {

run::WorkerDevice worker_device(const cluster::Cluster& cluster, DeviceId id,
                                const std::optional<cluster::Route>& route) {
  const cluster::Device& device = cluster.device(id);
  const std::string& host = cluster.node(device.node).host;
  run::WorkerDevice worker;
  worker.name = device.name;
  worker.kind = device.kind;
  if (!run::is_this_machine(host)) worker.host = host;
  worker.local_index = device.local_index;
  worker.uuid = device.uuid;
  worker.threads = device.threads;
  worker.speed = device.speed;
  worker.memory = device.memory;
  if (route) {
    worker.rate = route->bandwidth.value;
    worker.latency = route->latency.value;
  }
  return worker;
}

bool are_all_here(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  return std::all_of(devices.begin(), devices.end(), [&](DeviceId id) {
    return run::is_this_machine(cluster.node(cluster.device(id).node).host);
  });
}

std::optional<cluster::Route> emulated_route(const cluster::Cluster& cluster,
                                             const std::vector<DeviceId>& devices) {
  return are_all_here(cluster, devices) ? cluster::group_route(cluster, devices) : std::nullopt;
}

}  // namespace motley::control
