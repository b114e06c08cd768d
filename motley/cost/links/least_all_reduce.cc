#include "motley/cost/links/least_all_reduce.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "motley/base/check.h"
#include "motley/cost/links/two_trees.h"

namespace motley::cost {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

/// Returns the seconds of the slowest link; 0 if there is none.
double seconds_per_byte(const Network& network, const std::vector<std::int32_t>& links) {
  double seconds = 0;
  for (const std::int32_t link : links)
    if (link >= 0)
      seconds =
          std::max(seconds, 1 / network.links()[static_cast<std::size_t>(link)].capacity.value);
  return seconds;
}

/// Returns at most two nodes of each class of identical ones.
std::vector<NodeId> examples(const Network& network, const std::vector<NodeId>& nodes) {
  std::map<int, int> seen;
  std::vector<NodeId> found;
  for (const NodeId node : nodes)
    if (seen[network.likeness()[node.index()]]++ < 2) found.push_back(node);
  return found;
}

void keep_least(const LeastAllReduce::Line& line, std::vector<LeastAllReduce::Line>& lines) {
  const auto is_no_worse = [](const auto& a, const auto& b) {
    return a.latency <= b.latency && a.seconds_per_byte <= b.seconds_per_byte;
  };
  for (const LeastAllReduce::Line& known : lines)
    if (is_no_worse(known, line)) return;
  std::erase_if(lines, [&](const auto& known) { return is_no_worse(line, known); });
  lines.push_back(line);
}

}  // namespace

LeastAllReduce::LeastAllReduce(const Network& network, const std::vector<DeviceId>& devices,
                               const Transport& transport, Backend backend)
    : backend_(backend) {
  std::map<NodeId, std::vector<DeviceId>> by_node;
  for (const DeviceId device : devices) by_node[network.node(device)].push_back(device);
  std::vector<NodeId> nodes;
  double inside = kForever, between = kForever, way = kForever;
  for (const auto& [node, members] : by_node) {
    nodes.push_back(node);
    on_node_.push_back(members.size());
    if (members.size() < 2) continue;
    inside = std::min(inside, network.local_latency(node).value);
    for (const DeviceId device : members) {
      const Network::Ports ports = network.device_ports(device);
      ports_.push_back(seconds_per_byte(network, {ports.out, ports.in, network.local_whole(node)}));
    }
  }
  std::sort(ports_.begin(), ports_.end());
  std::sort(on_node_.begin(), on_node_.end(), std::greater<>());
  counts_.push_back(0);
  for (const std::size_t members : on_node_) counts_.push_back(counts_.back() + members);
  reach_.resize(counts_.size());
  const std::vector<NodeId> some = examples(network, nodes);
  for (const NodeId from : some)
    for (const NodeId to : some) {
      if (from == to) continue;
      const Network::Way taken = network.way(from, to);
      between = std::min(between, taken.latency.value);
      way = std::min(way, std::max({seconds_per_byte(network, taken.out),
                                    seconds_per_byte(network, taken.between),
                                    seconds_per_byte(network, taken.in)}));
    }
  inside_ = transport.latency.value + inside;
  between_ = transport.latency.value + between;
  way_ = way;
}

double LeastAllReduce::port(std::size_t j) const {
  return j == 0 || ports_.empty() ? 0 : ports_[std::min(j, ports_.size()) - 1];
}

LeastAllReduce::Line LeastAllReduce::ring(std::size_t ranks, std::size_t nodes) const {
  const double steps = 2 * static_cast<double>(ranks - 1);
  const double hop = std::max(nodes > 1 ? way_ : 0, port(ranks - nodes));
  return {steps * (nodes > 1 ? between_ : inside_), steps / static_cast<double>(ranks) * hop};
}

const LeastAllReduce::Reach& LeastAllReduce::reach(std::size_t nodes) const {
  Reach& reach = reach_[nodes];
  if (!reach.empty()) return reach;
  std::vector<int> depths = tree_depths(nodes);
  std::sort(depths.begin(), depths.end());
  const auto below = [&](int depth) { return depth > 0 ? depth * between_ : 0.0; };
  const auto chain = [&](std::size_t length) {
    return length > 1 ? static_cast<double>(length - 1) * inside_ : 0.0;
  };
  std::set<double> times;
  for (int depth = depths.front(); depth <= depths.back(); ++depth)
    for (std::size_t length = 1; length <= on_node_.front(); ++length)
      times.insert(below(depth) + chain(length));
  for (const double time : times) {
    if (time < below(depths.back())) continue;
    std::size_t ranks = 0, length = on_node_.front();
    for (std::size_t node = 0; node < nodes; ++node) {
      while (below(depths[node]) + chain(length) > time) --length;  // deeper, so not longer
      ranks += std::min(length, on_node_[node]);
    }
    reach.emplace_back(time, ranks);
  }
  return reach;
}

LeastAllReduce::Line LeastAllReduce::trees(std::size_t ranks, std::size_t nodes) const {
  // Ranks inside chains are passed twice, up and down both trees; end ranks once.
  double hop = std::max(ranks > nodes ? port(ranks - nodes + 1) : 0,
                        ranks > 2 * nodes ? 2 * port(ranks - 2 * nodes) : 0);
  if (nodes > 1) hop = std::max(hop, way_ * (nodes == 2 ? 1 : nodes == 3 ? 1.5 : 2));
  const Reach& known = reach(nodes);
  const auto first =
      std::lower_bound(known.begin(), known.end(), ranks,
                       [](const auto& each, std::size_t wanted) { return each.second < wanted; });
  return {2 * first->first, hop};
}

std::vector<LeastAllReduce::Line> LeastAllReduce::lines(std::size_t ranks) const {
  MOTLEY_CHECK(ranks >= 2 && ranks <= counts_.back());
  std::vector<Line> lines;
  for (std::size_t nodes = 1; nodes < counts_.size() && nodes <= ranks; ++nodes) {
    if (counts_[nodes] < ranks) continue;
    keep_least(ring(ranks, nodes), lines);
    if (backend_ == Backend::kNccl) keep_least(trees(ranks, nodes), lines);
  }
  return lines;
}

}  // namespace motley::cost
