#include "peers/hap/named_clusters.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "motley/base/text.h"
#include "motley/cluster/kinds.h"
#include "peers/hap/published_models.h"

namespace motley::peers {
namespace {

constexpr std::int64_t kMostDevices = 4096;
constexpr double kShareOfPeak = 0.25;

std::vector<std::string> numbered(const std::string& node, std::int64_t count) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < count; ++i) names.push_back(fmt::format("{}:{}", node, i));
  return names;
}

/// Returns a device's rate to its peers within its machine, by its kind.
Result<BytesPerSecond> local_rate(const cluster::PlanningKind& kind, const std::string& device) {
  if (kind.peer_bandwidth) return *kind.peer_bandwidth;
  if (kind.host_bandwidth) return *kind.host_bandwidth;
  return usage_error("peers.hap-cluster",
                     fmt::format("{} ({}): no link joins the devices and no rate of its own is "
                                 "known; add a [[link]] between them",
                                 device, kind.name));
}

CollectiveRates ring_rates(double bytes_per_second, double devices, double on_a_node) {
  const double once = devices / (devices - 1);
  const double sent = on_a_node < devices ? on_a_node * (devices - on_a_node) : devices - 1;
  return {.all_gather = bytes_per_second * once,
          .all_reduce = bytes_per_second * once / 2,
          .reduce_scatter = bytes_per_second * once,
          .all_to_all = bytes_per_second * devices * devices / sent,
          .grouped_all_gather = bytes_per_second,
          .grouped_reduce_scatter = bytes_per_second};
}

}  // namespace

Result<NamedCluster> make_named_cluster(std::string_view text) {
  const std::vector<std::string> known = {"v100-p100", "equal"};
  const std::size_t colon = text.find(':');
  const std::string name(text.substr(0, colon));
  const auto fault = [&](const std::string& found) {
    return usage_error("peers.hap-cluster",
                       fmt::format("HAP's cluster '{}': {}, wanted v100-p100:N (one V100 to three "
                                   "P100, N a multiple of 4) or equal:N, N from 1 to {}",
                                   text, found, kMostDevices));
  };
  if (std::find(known.begin(), known.end(), name) == known.end())
    return fault(fmt::format("unknown name{}", suggestion_clause(name, known)));
  std::int64_t count = 8;
  if (colon != std::string_view::npos) {
    const auto given = find_integer(text.substr(colon + 1));
    if (!given || *given < 1 || *given > kMostDevices) return fault("no such number of devices");
    count = *given;
  }
  NamedCluster made;
  made.name = fmt::format("{}:{}", name, count);
  if (name == "equal") {
    made.rates = make_default_cluster(count);
    made.devices = numbered("equal", count);
    return made;
  }
  if (count % 4 != 0) return fault("not a multiple of 4");
  made.rates = make_v100_p100_cluster(count);
  made.devices = numbered("v100", count / 4);
  for (std::string& device : numbered("p100", count - count / 4))
    made.devices.push_back(std::move(device));
  return made;
}

Result<NamedCluster> view_as_hap(const cluster::Cluster& cluster,
                                 const std::vector<DeviceId>& devices) {
  if (devices.size() < 2)
    return usage_error(
        "peers.hap-cluster",
        fmt::format("HAP splits work over two devices or more; found {}", devices.size()));
  NamedCluster made;
  made.name = cluster.name;
  std::map<NodeId, std::size_t> on_node;
  for (const DeviceId id : devices) {
    const cluster::Device& device = cluster.device(id);
    const auto kind = cluster::find_kind(device.kind);
    if (!kind)
      return usage_error("peers.hap-cluster",
                         fmt::format("{}: HAP needs the flops of its kind, and '{}' has none in "
                                     "the table; give a planning kind such as v100-16g",
                                     device.name, device.kind));
    made.devices.push_back(device.name);
    made.rates.device_flops.push_back(kShareOfPeak * kind->peak.f32.value);
    ++on_node[device.node];
  }
  const auto count = static_cast<double>(devices.size());
  std::size_t most = 0;
  for (const auto& [node, number] : on_node) most = std::max(most, number);
  if (const auto route = cluster::group_route(cluster, devices)) {
    made.rates.bytes_per_second =
        ring_rates(route->bandwidth.value, count, static_cast<double>(most));
    made.latency = Seconds((count - 1) * route->latency.value);
    return made;
  }
  std::optional<BytesPerSecond> least;
  for (const DeviceId id : devices) {
    const cluster::Device& device = cluster.device(id);
    MOTLEY_ASSIGN(const auto rate, local_rate(*cluster::find_kind(device.kind), device.name));
    if (!least || rate.value < least->value) least = rate;
  }
  made.rates.bytes_per_second = ring_rates(least->value, count, count);
  return made;
}

}  // namespace motley::peers
