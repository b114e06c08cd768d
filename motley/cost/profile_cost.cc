#include "motley/cost/profile_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "motley/base/text.h"
#include "motley/cluster/quantity_text.h"

namespace motley::cost {

std::string route_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  const auto route = cluster::group_route(cluster, devices);
  if (!route) return "local";
  return cluster::short_rate(route->bandwidth) + "+" + cluster::short_seconds(route->latency);
}

std::string backend_key(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices) {
  const bool has_cpu = std::any_of(devices.begin(), devices.end(),
                                   [&](DeviceId id) { return cluster.device(id).kind == "cpu"; });
  return has_cpu ? "gloo" : "nccl";
}

DeviceKey device_key(const cluster::Device& device, const std::string& torch_version) {
  const std::vector<std::string_view> parts = split(torch_version, '.');
  return {device.kind != "cpu" && !device.model.empty() ? device.model : device.kind,
          device.threads,
          parts.size() < 2 ? torch_version : fmt::format("{}.{}", parts[0], parts[1])};
}

int count_neighbours(const cluster::Cluster& cluster, DeviceId device) {
  const auto is_local_cpu = [&](const cluster::Device& other) {
    return other.kind == "cpu" &&
           cluster.node(other.node).host == cluster.node(cluster.device(device).node).host;
  };
  if (!is_local_cpu(cluster.device(device))) return 0;
  return static_cast<int>(
             std::count_if(cluster.devices.begin(), cluster.devices.end(), is_local_cpu)) -
         1;
}

DeviceKey shared_key(const cluster::Cluster& cluster, DeviceId device,
                     const std::string& torch_version) {
  DeviceKey key = device_key(cluster.device(device), torch_version);
  if (const int neighbours = count_neighbours(cluster, device); neighbours > 0)
    key.kind += fmt::format(" beside {}", neighbours);
  return key;
}

ProfileCost::ProfileCost(const cluster::Cluster& cluster,
                         std::map<std::string, DeviceTimes> devices, CollectiveTimes collectives)
    : cluster_(cluster), devices_(std::move(devices)), collectives_(std::move(collectives)) {}

Result<std::vector<Seconds>> ProfileCost::compute_times(
    const program::DeviceProgram& program) const {
  const auto found = devices_.find(program.device);
  if (found == devices_.end()) {
    return usage_error("cost.missing-device",
                       fmt::format("no times for device '{}'; run `motley profile` with this "
                                   "cluster",
                                   program.device));
  }
  const std::size_t length = program.instructions.size();
  const InstructionTimes* times = nullptr;
  for (const auto& table : {found->second.shared, found->second.alone}) {
    if (table != nullptr && table->size() == length) times = table.get();
  }
  if (times == nullptr) {
    return stale_error("cost.other-program",
                       fmt::format("the program of '{}' has {} instructions, the profiled model "
                                   "another number; was it made from another model?",
                                   program.device, length));
  }
  std::vector<Seconds> seconds;
  seconds.reserve(length);
  for (std::size_t i = 0; i < length; ++i) {
    seconds.push_back(times->at(i, static_cast<double>(program.samples)) / found->second.speed);
  }
  return seconds;
}

Result<Seconds> ProfileCost::collective_time(std::string_view op, Bytes bytes,
                                             const std::vector<std::string>& devices) const {
  std::vector<DeviceId> ids;
  for (const std::string& name : devices) {
    MOTLEY_ASSIGN(const DeviceId id, cluster::find_device(cluster_, name));
    ids.push_back(id);
  }
  return collectives_.at(op, route_key(cluster_, ids), static_cast<int>(ids.size()), bytes,
                         backend_key(cluster_, ids));
}

}  // namespace motley::cost
