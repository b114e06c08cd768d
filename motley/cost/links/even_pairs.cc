#include "motley/cost/links/even_pairs.h"

#include <algorithm>

#include "motley/cost/links/collectives.h"

namespace motley::cost {

EvenPairs::EvenPairs(const Network& network, const Transport& transport,
                     const std::vector<DeviceId>& devices, double bytes)
    : network_(network), transport_(transport), bytes_(bytes) {
  std::map<NodeId, Node> nodes;
  for (const DeviceId device : devices) nodes[network.node(device)].push_back(device);
  std::map<std::vector<double>, std::size_t> places;
  for (auto& [id, node] : nodes) {
    const auto [place, is_new] = places.emplace(mark_of(node), classes_.size());
    if (is_new) classes_.emplace_back();
    classes_[place->second].push_back(std::move(node));
  }
}

void EvenPairs::add_inside() {
  for (const std::vector<Node>& nodes : classes_) {
    const std::map<Rates, int> counts = count_rates(nodes.front());
    for (const Count& from : counts)
      for (const Count& to : counts) add_inside(nodes, from, to);
  }
}

void EvenPairs::add_across(Which which) {
  for (const std::vector<Node>& from : classes_)
    for (const std::vector<Node>& to : classes_) add_across(from, to, which);
}

TransferPhase EvenPairs::take(std::size_t rounds) && {
  if (phase_.flows.empty()) return {};
  phase_.delay = slowest_ + static_cast<double>(rounds - 1) * transport_.latency;
  return std::move(phase_);
}

double EvenPairs::rate_of(std::int32_t link) const {
  return link < 0 ? -1.0 : network_.links()[static_cast<std::size_t>(link)].capacity.value;
}

EvenPairs::Rates EvenPairs::rates_of(DeviceId device) const {
  const Network::Ports ports = network_.device_ports(device);
  return {rate_of(ports.out), rate_of(ports.in)};
}

std::map<EvenPairs::Rates, int> EvenPairs::count_rates(const Node& node) const {
  std::map<Rates, int> counts;
  for (const DeviceId device : node) ++counts[rates_of(device)];
  return counts;
}

/// Returns a mark that is equal for interchangeable nodes, including their devices.
std::vector<double> EvenPairs::mark_of(const Node& node) const {
  const NodeId id = id_of(node);
  std::vector<double> mark = {static_cast<double>(network_.likeness()[id.index()]),
                              network_.local_latency(id).value, rate_of(network_.local_whole(id))};
  for (const auto& [rates, count] : count_rates(node))
    mark.insert(mark.end(), {rates.first, rates.second, static_cast<double>(count)});
  return mark;
}

void EvenPairs::add_inside(const std::vector<Node>& nodes, const Count& from, const Count& to) {
  const double receivers = to.second - (from.first == to.first ? 1 : 0);  // per sender
  if (receivers <= 0) return;
  const double senders = from.second * receivers / to.second;  // per receiver
  for (const Node& node : nodes) {
    for (const DeviceId device : node) {
      const Rates rates = rates_of(device);
      const Network::Ports ports = network_.device_ports(device);
      if (rates == from.first) use(ports.out, receivers);
      if (rates == to.first) use(ports.in, senders);
    }
    use(network_.local_whole(id_of(node)), from.second * receivers);
  }
  end_flow(network_.local_latency(id_of(nodes.front())));
}

void EvenPairs::add_across(const std::vector<Node>& from, const std::vector<Node>& to,
                           Which which) {
  const bool is_own = &from == &to;
  if (is_own && from.size() < 2) return;
  const std::size_t each = from.front().size();
  // Per pair of nodes.
  const auto pairs = static_cast<double>(which == Which::kAll ? each * to.front().size() : each);
  const auto others = static_cast<double>(to.size() - (is_own ? 1 : 0));
  const auto way = [&](std::size_t a, std::size_t b) {
    return network_.way(id_of(from[a]), id_of(to[b]));
  };
  for (std::size_t a = 0; a < from.size(); ++a)
    for (const std::int32_t link : way(a, is_own && a == 0 ? 1 : 0).out) use(link, pairs * others);
  const double senders = others * static_cast<double>(from.size()) / static_cast<double>(to.size());
  for (std::size_t b = 0; b < to.size(); ++b)
    for (const std::int32_t link : way(is_own && b == 0 ? 1 : 0, b).in) use(link, pairs * senders);
  const Network::Way any = way(0, is_own ? 1 : 0);
  for (const std::int32_t link : any.between)
    use(link, pairs * static_cast<double>(from.size()) * others);
  end_flow(any.latency);
}

void EvenPairs::use(std::int32_t link, double weight) {
  if (link >= 0) flow_.uses.push_back({link, weight});
}

void EvenPairs::end_flow(Seconds latency) {
  merge_uses(flow_);
  flow_.bytes = bytes_;
  flow_.most_rate = transport_.most_rate;
  phase_.flows.push_back(std::exchange(flow_, {}));
  slowest_ = std::max(slowest_, transport_.latency + latency);
}

}  // namespace motley::cost
