#include "motley/cost/links/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/base/check.h"
#include "motley/cluster/kinds.h"

namespace motley::cost {
namespace {

using cluster::Cluster;

std::optional<cluster::PlanningKind> kind_of(const cluster::Device& device) {
  if (const auto kind = cluster::find_kind(device.kind)) return *kind;
  return cluster::kind_of_model(device.model);
}

std::vector<DeviceId> devices_of(const Cluster& cluster, NodeId node) {
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (cluster.devices[i].node == node) devices.emplace_back(static_cast<std::int64_t>(i));
  }
  return devices;
}

std::string switch_name(const Cluster& cluster, const cluster::Link& link) {
  if (link.between.empty()) return "all";
  std::string name;
  for (const NodeId node : link.between) {
    name += (name.empty() ? "" : "+") + cluster.node(node).name;
  }
  return name;
}

}  // namespace

Network::Network(const Cluster& cluster)
    : switch_of_(cluster.nodes.size() * cluster.nodes.size(), -1),
      device_ports_(cluster.devices.size()),
      node_ports_(cluster.nodes.size()),
      local_whole_(cluster.nodes.size(), -1),
      local_latency_(cluster.nodes.size()) {
  for (const cluster::Device& device : cluster.devices) nodes_.push_back(device.node);
  for (const cluster::Link* link : cluster::links_by_preference(cluster)) {
    if (link->between.size() != 1) {
      add_switch(cluster, *link);
      continue;
    }
    local_latency_[link->between.front().index()] = link->latency;
    const std::vector<DeviceId> devices = devices_of(cluster, link->between.front());
    if (devices.size() > 1) {
      local_whole_[link->between.front().index()] =
          add_capacity(cluster.node(link->between.front()).name, *link);
    }
    for (std::size_t i = 0; i < devices.size() && devices.size() > 1; ++i) {
      add_device_ports(cluster, devices[i], link->bandwidth);
    }
  }
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    const cluster::Node& node = cluster.nodes[i];
    add_local(cluster, NodeId(static_cast<std::int64_t>(i)));
    if (!node.bandwidth) continue;
    node_ports_[i].out = add_link(node.name + " out", *node.bandwidth);
    node_ports_[i].in = add_link(node.name + " in", *node.bandwidth);
  }
  find_likeness();
}

std::int32_t Network::add_link(std::string name, BytesPerSecond capacity) {
  links_.push_back({std::move(name), capacity});
  return static_cast<std::int32_t>(links_.size()) - 1;
}

std::int32_t Network::add_capacity(std::string name, const cluster::Link& link) {
  return link.capacity ? add_link(std::move(name), *link.capacity) : -1;
}

void Network::add_device_ports(const Cluster& cluster, DeviceId device, BytesPerSecond capacity) {
  const std::string& name = cluster.device(device).name;
  const std::string& node = cluster.node(cluster.device(device).node).name;
  device_ports_[device.index()].out = add_link(fmt::format("{}>{}", name, node), capacity);
  device_ports_[device.index()].in = add_link(fmt::format("{}>{}", node, name), capacity);
}

void Network::add_switch(const Cluster& cluster, const cluster::Link& link) {
  Switch added;
  added.nodes = link.between;
  added.latency = link.latency;
  if (link.between.empty()) {
    for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
      added.nodes.emplace_back(static_cast<std::int64_t>(i));
    }
  }
  std::sort(added.nodes.begin(), added.nodes.end());
  const auto name = [&](std::size_t i) { return cluster.node(added.nodes[i]).name; };
  // A cable: each direction is one link for both ends. At a switch each node has its own two.
  if (link.between.size() == 2) {
    const std::int32_t there = add_link(name(0) + ">" + name(1), link.bandwidth);
    const std::int32_t back = add_link(name(1) + ">" + name(0), link.bandwidth);
    added.ports = {{there, back}, {back, there}};
  } else {
    const std::string own = switch_name(cluster, link);
    for (std::size_t i = 0; i < added.nodes.size(); ++i) {
      const std::int32_t out = add_link(name(i) + ">" + own, link.bandwidth);
      added.ports.push_back({out, add_link(own + ">" + name(i), link.bandwidth)});
    }
  }
  added.whole = add_capacity(switch_name(cluster, link), link);
  const auto number = static_cast<std::int32_t>(switches_.size());
  for (const NodeId a : added.nodes) {
    for (const NodeId b : added.nodes) {
      std::int32_t& taken = switch_of_[a.index() * cluster.nodes.size() + b.index()];
      // Links are ordered by preference: the first that joins a pair is used.
      if (taken < 0 && a != b) taken = number;
    }
  }
  switches_.push_back(std::move(added));
}

// Adds ports of the kinds if a node of several devices has no link of its own.
void Network::add_local(const Cluster& cluster, NodeId node) {
  const std::vector<DeviceId> devices = devices_of(cluster, node);
  if (devices.size() < 2 || device_ports_[devices.front().index()].out >= 0) return;
  std::vector<std::optional<cluster::PlanningKind>> kinds;
  for (const DeviceId device : devices) kinds.push_back(kind_of(cluster.device(device)));
  const bool are_identical = std::all_of(kinds.begin(), kinds.end(), [&](const auto& kind) {
    return kind && kind->name == kinds.front()->name;
  });
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!kinds[i]) continue;
    // NVLink and similar links join devices of one kind; different kinds use the host's bus.
    const auto rate = are_identical && kinds[i]->peer_bandwidth ? kinds[i]->peer_bandwidth
                                                                : kinds[i]->host_bandwidth;
    if (rate) add_device_ports(cluster, devices[i], *rate);
  }
}

std::vector<double> Network::capacities() const {
  std::vector<double> capacities;
  for (const NetworkLink& link : links_) capacities.push_back(link.capacity.value);
  return capacities;
}

const Network::Switch* Network::switch_of(NodeId from, NodeId to) const {
  const std::int32_t taken = switch_of_[from.index() * node_ports_.size() + to.index()];
  return taken < 0 ? nullptr : &switches_[static_cast<std::size_t>(taken)];
}

const Network::Ports& Network::ports(const Switch& by, NodeId node) {
  const auto at = std::lower_bound(by.nodes.begin(), by.nodes.end(), node);
  return by.ports[static_cast<std::size_t>(at - by.nodes.begin())];
}

// Visits each link of the path between two nodes; returns the latency of a message.
template <typename Out, typename Between, typename In>
Seconds Network::cross(NodeId from, NodeId to, const Out& out, const Between& between,
                       const In& in) const {
  out(node_ports_[from.index()].out);
  Seconds latency;
  if (const Switch* by = switch_of(from, to)) {
    const std::int32_t first = ports(*by, from).out, last = ports(*by, to).in;
    // A link that is both ends' port, as for a pair, is crossed once.
    if (first != last) out(first);
    between(by->whole);
    if (first == last) between(first);
    if (first != last) in(last);
    latency = by->latency;
  }
  in(node_ports_[to.index()].in);
  return latency;
}

Network::Way Network::way(NodeId from, NodeId to) const {
  Way way;
  const auto into = [](std::vector<std::int32_t>& links) {
    return [&links](std::int32_t link) {
      if (link >= 0) links.push_back(link);
    };
  };
  way.latency = cross(from, to, into(way.out), into(way.between), into(way.in));
  return way;
}

Path Network::path(DeviceId from, DeviceId to) const {
  Path path;
  path.latency = add_path(from, to, path.links);
  return path;
}

Seconds Network::add_path(DeviceId from, DeviceId to, std::vector<std::int32_t>& links) const {
  if (from == to) return {};
  const NodeId a = node(from), b = node(to);
  const auto add = [&](std::int32_t link) {
    if (link >= 0) links.push_back(link);
  };
  if (a != b) return cross(a, b, add, add, add);
  add(device_ports_[from.index()].out);
  add(local_whole_[a.index()]);
  add(device_ports_[to.index()].in);
  return local_latency_[a.index()];
}

Seconds Network::latency(DeviceId from, DeviceId to) const {
  if (from == to) return {};
  const NodeId a = node(from), b = node(to);
  if (a == b) return local_latency_[a.index()];
  const Switch* by = switch_of(a, b);
  return by == nullptr ? Seconds() : by->latency;
}

/// Classifies nodes by their connections: the card and the rates at each switch. A pair's own link
/// is a switch of these two nodes, whose ends match no others.
void Network::find_likeness() {
  const auto rate = [&](std::int32_t link) {
    return link < 0 ? -1.0 : links_[static_cast<std::size_t>(link)].capacity.value;
  };
  std::vector<std::vector<double>> marks(node_ports_.size());
  for (std::size_t node = 0; node < marks.size(); ++node)
    marks[node] = {rate(node_ports_[node].out), rate(node_ports_[node].in)};
  for (std::size_t s = 0; s < switches_.size(); ++s)
    for (std::size_t i = 0; i < switches_[s].nodes.size(); ++i) {
      const Ports& ports = switches_[s].ports[i];
      const auto place = switches_[s].nodes.size() == 2 ? static_cast<double>(i) : 0.0;
      std::vector<double>& mark = marks[switches_[s].nodes[i].index()];
      mark.insert(mark.end(), {static_cast<double>(s), rate(ports.out), rate(ports.in), place});
    }
  std::map<std::vector<double>, int> known;
  for (const std::vector<double>& mark : marks)
    likeness_.push_back(known.emplace(mark, static_cast<int>(known.size())).first->second);
}

}  // namespace motley::cost
