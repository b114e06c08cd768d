#include "motley/cluster/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/base/file.h"
#include "motley/base/random.h"
#include "motley/base/text.h"

namespace motley::cluster {
namespace {

// Lowers a route to the slower of two in each respect; an empty one does not limit.
void slow_down(std::optional<Route>& route, const Route& by) {
  if (!route) route = by;
  route->bandwidth = std::min(route->bandwidth, by.bandwidth);
  route->latency = std::max(route->latency, by.latency);
}

// Returns the share of a link that a single pair of nodes gets.
Route route_of(const Link& link) {
  return {std::min(link.bandwidth, link.capacity.value_or(link.bandwidth)), link.latency};
}

// Returns the nodes of `sorted` that the link joins, in that order.
std::vector<NodeId> joined_nodes(const Link& link, const std::vector<NodeId>& sorted) {
  if (link.between.empty()) return sorted;
  std::vector<NodeId> between = link.between, joined;
  std::sort(between.begin(), between.end());
  std::set_intersection(between.begin(), between.end(), sorted.begin(), sorted.end(),
                        std::back_inserter(joined));
  return joined;
}

// Pairs of nodes that already have their link.
class PairsOfNodes {
 public:
  explicit PairsOfNodes(const std::vector<NodeId>& sorted)
      : nodes_(sorted), left_(sorted.size() * (sorted.size() - (sorted.empty() ? 0 : 1)) / 2) {}

  // Adds all pairs of these nodes; returns whether one was new.
  bool add(const std::vector<NodeId>& joined) {
    const std::size_t left = left_;
    if (joined.size() == nodes_.size()) left_ = 0;
    if (left_ == 0) return left > 0;
    has_link_.resize(nodes_.size() * nodes_.size(), false);
    for (std::size_t i = 0; i < joined.size(); ++i)
      for (std::size_t j = i + 1; j < joined.size(); ++j) {
        const std::size_t pair = place_of(joined[i]) * nodes_.size() + place_of(joined[j]);
        if (!has_link_[pair]) --left_;
        has_link_[pair] = true;
      }
    return left_ < left;
  }

 private:
  std::size_t place_of(NodeId node) const {
    const auto at = std::lower_bound(nodes_.begin(), nodes_.end(), node);
    return static_cast<std::size_t>(at - nodes_.begin());
  }

  const std::vector<NodeId>& nodes_;
  std::vector<bool> has_link_;  // by pair of positions
  std::size_t left_;            // pairs without a link
};

}  // namespace

std::vector<const Link*> links_by_preference(const Cluster& cluster) {
  std::vector<const Link*> links;
  for (const Link& link : cluster.links) links.push_back(&link);
  std::stable_sort(links.begin(), links.end(), [](const Link* a, const Link* b) {
    const auto rank = [](const Link* link) {
      return std::make_tuple(link->between.empty(), link->between.size(), -link->bandwidth.value,
                             link->latency.value);
    };
    return rank(a) < rank(b);
  });
  return links;
}

bool are_identical(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  const auto model = [](const Device& device) {
    return device.model.empty() ? device.taken_for : device.model;
  };
  return std::all_of(devices.begin(), devices.end(), [&](DeviceId id) {
    const Device& first = cluster.device(devices.front());
    const Device& device = cluster.device(id);
    return device.kind == first.kind && model(device) == model(first) &&
           device.threads == first.threads;
  });
}

std::optional<double> price_per_hour(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::set<NodeId> nodes;
  for (const DeviceId id : devices) nodes.insert(cluster.device(id).node);
  double sum = 0;
  for (const NodeId node : nodes) {
    const auto& price = cluster.node(node).price_per_hour;
    if (!price) return std::nullopt;
    sum += *price;
  }
  return sum;
}

std::vector<DeviceId> all_devices(const Cluster& cluster) {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    devices.emplace_back(static_cast<std::int64_t>(i));
  return devices;
}

Result<DeviceId> find_device(const Cluster& cluster, std::string_view name) {
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (cluster.devices[i].name == name) return DeviceId(static_cast<std::int64_t>(i));
  }
  std::vector<std::string> names;
  for (const Device& device : cluster.devices) names.push_back(device.name);
  return usage_error("cluster.unknown-device",
                     fmt::format("cluster '{}' has no device '{}'{}", cluster.name, name,
                                 suggestion_clause(name, names)));
}

std::optional<Route> group_route(const Cluster& cluster, const std::vector<DeviceId>& devices) {
  std::map<NodeId, int> members;  // node -> number of the group's devices
  for (const DeviceId id : std::set<DeviceId>(devices.begin(), devices.end())) {
    ++members[cluster.device(id).node];
  }
  std::vector<NodeId> nodes;
  for (const auto& [node, count] : members) nodes.push_back(node);

  std::optional<Route> route;
  PairsOfNodes routed(nodes);
  for (const Link* link : links_by_preference(cluster)) {
    if (link->between.size() == 1) {
      const auto found = members.find(link->between.front());
      if (found != members.end() && found->second > 1) slow_down(route, route_of(*link));
      continue;
    }
    if (routed.add(joined_nodes(*link, nodes))) slow_down(route, route_of(*link));
  }
  for (std::size_t i = 0; i < nodes.size() && nodes.size() > 1; ++i) {
    const std::optional<BytesPerSecond>& own = cluster.node(nodes[i]).bandwidth;
    if (own) slow_down(route, {*own, Seconds(0.0)});
  }
  return route;
}

std::vector<std::vector<DeviceId>> find_shared_gpus(const Cluster& cluster,
                                                    const std::vector<DeviceId>& devices) {
  std::vector<std::vector<DeviceId>> gpus;
  std::map<std::pair<std::string, std::string>, std::size_t> known;
  for (const DeviceId id : devices) {
    const Device& device = cluster.device(id);
    if (device.kind != "cuda") continue;
    // A UUID identifies a GPU worldwide, under any host name.
    const auto which = device.uuid.empty() ? std::pair(cluster.node(device.node).host,
                                                       std::to_string(device.local_index))
                                           : std::pair(std::string(), device.uuid);
    const auto [at, is_new] = known.emplace(which, gpus.size());
    if (is_new) gpus.emplace_back();
    gpus[at->second].push_back(id);
  }
  std::erase_if(gpus, [](const std::vector<DeviceId>& each) { return each.size() < 2; });
  return gpus;
}

void part_shared_memory(Cluster& cluster, const std::vector<DeviceId>& devices) {
  for (const std::vector<DeviceId>& gpu : find_shared_gpus(cluster, devices))
    for (const DeviceId id : gpu)
      if (auto& memory = cluster.devices[id.index()].memory)
        memory = Bytes(memory->value / static_cast<std::int64_t>(gpu.size()));
}

Result<Cluster> read_cluster(const std::string& path) {
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  return parse_cluster(text, path);
}

std::string cluster_hash(const Cluster& cluster) { return hash_hex(print_cluster(cluster)); }

}  // namespace motley::cluster
