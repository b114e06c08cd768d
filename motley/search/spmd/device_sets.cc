#include "motley/search/spmd/device_sets.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace motley::search {
namespace {

/// ratio; speeds closer than this are of one kind
constexpr double kSameSpeed = 0.99;

class DeviceSets {
 public:
  DeviceSets(const cluster::Cluster& cluster, const std::vector<DeviceId>& devices,
             const std::vector<double>& speeds)
      : cluster_(cluster), devices_(devices), speeds_(speeds) {}

  std::vector<DeviceSet> find() {
    add_fastest_kinds();
    add_nodes();
    const std::size_t first = found_.size();
    if (devices_.size() <= kFewDevices) {
      add_all();
    } else {
      leave_out_nodes();
      leave_out_slowest();
    }
    const auto speed = [](const DeviceSet& set) {
      return std::accumulate(set.shares.begin(), set.shares.end(), 0.0);
    };
    std::stable_sort(found_.begin() + static_cast<std::ptrdiff_t>(first), found_.end(),
                     [&](const DeviceSet& a, const DeviceSet& b) { return speed(a) > speed(b); });
    return std::move(found_);
  }

 private:
  void add_fastest_kinds() {
    std::vector<double> kinds = speeds_;
    std::sort(kinds.begin(), kinds.end());
    const auto is_one = [](double a, double b) { return a > b * kSameSpeed; };
    kinds.erase(std::unique(kinds.begin(), kinds.end(), is_one), kinds.end());
    for (const double slowest : kinds)
      add_where([&](std::size_t i) { return speeds_[i] >= slowest * kSameSpeed; });
  }

  void add_nodes() {
    for (const NodeId node : nodes()) add_where([&](std::size_t i) { return node_of(i) == node; });
  }

  void leave_out_nodes() {
    for (const NodeId node : nodes()) add_where([&](std::size_t i) { return node_of(i) != node; });
  }

  void leave_out_slowest() {
    std::vector<std::size_t> order(devices_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return speeds_[a] < speeds_[b]; });
    for (std::size_t count = 1; count + 2 <= devices_.size(); count *= 2) {
      const std::set<std::size_t> out(order.begin(),
                                      order.begin() + static_cast<std::ptrdiff_t>(count));
      add_where([&](std::size_t i) { return out.count(i) == 0; });
    }
  }

  /// Adds all sets, those with the first devices first.
  void add_all() {
    const std::size_t last = devices_.size() - 1;
    for (unsigned chosen = (2U << last) - 1; chosen > 0; --chosen)
      add_where([&](std::size_t i) { return (chosen >> (last - i) & 1) != 0; });
  }

  void add_where(const std::function<bool(std::size_t)>& is_in) {
    DeviceSet set;
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      if (!is_in(i)) continue;
      set.devices.push_back(devices_[i]);
      set.shares.push_back(speeds_[i]);
    }
    if (set.devices.size() < 2 || !known_.insert(likeness_of(set)).second) return;
    found_.push_back(std::move(set));
  }

  using OfNode = std::vector<std::pair<double, std::int64_t>>;  // speeds and memories
  using Way = std::pair<double, double>;                        // bandwidth and latency
  using Likeness = std::pair<std::vector<OfNode>, std::vector<Way>>;

  Likeness likeness_of(const DeviceSet& set) const {
    std::map<NodeId, OfNode> nodes;
    for (std::size_t i = 0; i < set.devices.size(); ++i) {
      const cluster::Device& device = cluster_.device(set.devices[i]);
      nodes[device.node].emplace_back(set.shares[i], device.room().value_or(Bytes(-1)).value);
    }
    Likeness likeness;
    for (auto& [node, members] : nodes) {
      std::sort(members.begin(), members.end());
      likeness.first.push_back(std::move(members));
    }
    std::sort(likeness.first.begin(), likeness.first.end());
    likeness.second = ways_between(set.devices);
    return likeness;
  }

  /// Returns the routes of each pair of few devices, or of a larger set as a whole.
  std::vector<Way> ways_between(const std::vector<DeviceId>& devices) const {
    const auto way = [&](const std::vector<DeviceId>& group) {
      const auto route = cluster::group_route(cluster_, group);
      return route ? Way(route->bandwidth.value, route->latency.value)
                   : Way(std::numeric_limits<double>::infinity(), 0);
    };
    if (devices.size() > kFewDevices) return {way(devices)};
    std::vector<Way> ways;
    for (std::size_t i = 0; i < devices.size(); ++i)
      for (std::size_t j = 0; j < i; ++j) ways.push_back(way({devices[j], devices[i]}));
    std::sort(ways.begin(), ways.end());
    return ways;
  }

  NodeId node_of(std::size_t i) const { return cluster_.device(devices_[i]).node; }
  std::set<NodeId> nodes() const {
    std::set<NodeId> nodes;
    for (std::size_t i = 0; i < devices_.size(); ++i) nodes.insert(node_of(i));
    return nodes;
  }

  const cluster::Cluster& cluster_;
  const std::vector<DeviceId>& devices_;
  const std::vector<double>& speeds_;
  std::vector<DeviceSet> found_;
  std::set<Likeness> known_;
};

}  // namespace

std::vector<DeviceSet> find_device_sets(const cluster::Cluster& cluster,
                                        const std::vector<DeviceId>& devices,
                                        const std::vector<double>& speeds) {
  return DeviceSets(cluster, devices, speeds).find();
}

std::vector<DeviceSet> sets_without_one(const cluster::Cluster& cluster, const DeviceSet& set) {
  if (set.devices.size() < 3) return {};
  std::vector<std::size_t> order(set.devices.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return set.shares[a] < set.shares[b]; });
  std::set<std::pair<NodeId, double>> seen;
  std::vector<DeviceSet> sets;
  for (const std::size_t out : order) {
    if (!seen.emplace(cluster.device(set.devices[out]).node, set.shares[out]).second) continue;
    DeviceSet& fewer = sets.emplace_back(set);
    fewer.devices.erase(fewer.devices.begin() + static_cast<std::ptrdiff_t>(out));
    fewer.shares.erase(fewer.shares.begin() + static_cast<std::ptrdiff_t>(out));
  }
  return sets;
}

}  // namespace motley::search
