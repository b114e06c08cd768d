#include "motley/search/stages/costs/cluster_pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "motley/cluster/kinds.h"

namespace motley::search {
namespace {

constexpr Bytes kNoLimit{std::int64_t{1} << 50};

/// Kind, memory, speed, threads.
using Sort = std::tuple<std::string, std::int64_t, double, int>;
using SortedDevices = std::map<Sort, std::vector<DeviceId>>;

Result<Bytes> memory_of(const cluster::Device& device, UnknownMemory unknown) {
  if (const auto room = device.room()) return *room;
  const auto kind = cluster::find_kind(device.kind);
  if (kind && kind->memory) return *kind->memory;
  if (unknown == UnknownMemory::kUnlimited) return kNoLimit;
  return usage_error("search.stages", fmt::format("device {} of kind {}: its memory is not known; "
                                                  "give `memory`",
                                                  device.name, device.kind));
}

/// Names pools of one kind by their hosts: "n0 to n11".
void name_zones(const cluster::Cluster& cluster, ClusterPools& found) {
  const auto host = [&](DeviceId id) { return cluster.node(cluster.device(id).node).name; };
  for (std::size_t p = 0; p < found.pools.size(); ++p) {
    const auto is_identical = [&](const DevicePool& other) {
      return other.kind == found.pools[p].kind && other.first_host != found.pools[p].first_host;
    };
    if (std::none_of(found.pools.begin(), found.pools.end(), is_identical)) continue;
    const std::string first = host(found.devices[p].front()), last = host(found.devices[p].back());
    found.pools[p].zone = first == last ? first : fmt::format("{} to {}", first, last);
  }
}

/// Returns a signature of a node: its number of devices of each sort, and the links that name it.
std::string signature_of(const cluster::Cluster& cluster, NodeId node,
                         const SortedDevices& devices) {
  std::string text;
  for (const auto& [sort, those] : devices) {
    const auto& [kind, memory, speed, threads] = sort;
    text += fmt::format("{} {} {} {} {};", kind, memory, speed, threads, those.size());
  }
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const auto& between = cluster.links[i].between;
    if (std::find(between.begin(), between.end(), node) != between.end())
      text += fmt::format(" link {}", i);
  }
  return text;
}

}  // namespace

Result<ClusterPools> find_pools(const cluster::Cluster& cluster,
                                const std::vector<DeviceId>& devices, UnknownMemory unknown) {
  std::map<NodeId, SortedDevices> nodes;
  for (const DeviceId id : devices) {
    const cluster::Device& device = cluster.device(id);
    MOTLEY_ASSIGN(const Bytes memory, memory_of(device, unknown));
    nodes[device.node][{device.kind, memory.value, device.speed, device.threads}].push_back(id);
  }
  std::vector<std::string> order;
  std::map<std::string, std::vector<const SortedDevices*>> identical;
  for (const auto& [node, sorted] : nodes) {
    const std::string signature = signature_of(cluster, node, sorted);
    if (!identical.contains(signature)) order.push_back(signature);
    identical[signature].push_back(&sorted);
  }
  ClusterPools found;
  int first_host = 0;
  for (const std::string& signature : order) {
    const std::vector<const SortedDevices*>& hosts = identical[signature];
    std::map<DeviceId, const Sort*> sorts;
    for (const auto& [sort, those] : *hosts.front()) sorts.emplace(those.front(), &sort);
    for (const auto& [first, sort] : sorts) {
      DevicePool pool{std::get<0>(*sort), "", 0, 0, Bytes(std::get<1>(*sort)), first_host};
      pool.per_host = static_cast<int>(hosts.front()->at(*sort).size());
      std::vector<DeviceId>& all = found.devices.emplace_back();
      for (const SortedDevices* host : hosts) {
        const std::vector<DeviceId>& those = host->at(*sort);
        all.insert(all.end(), those.begin(), those.end());
      }
      pool.devices = static_cast<int>(all.size());
      found.pools.push_back(std::move(pool));
    }
    first_host += static_cast<int>(hosts.size());
  }
  if (found.pools.empty()) return usage_error("search.stages", "the cluster has no devices");
  name_zones(cluster, found);
  return found;
}

Result<ClusterPools> find_pools(const cluster::Cluster& cluster) {
  return find_pools(cluster, cluster::all_devices(cluster), UnknownMemory::kRefused);
}

}  // namespace motley::search
