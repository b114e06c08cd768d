#include "motley/control/found_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

namespace motley::control {
namespace {

constexpr double kAlike = 0.1;

/// Rounded as a person would write it: three digits.
double rounded(double value) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  return std::round(value / unit) * unit;
}

std::string as_word(std::string text) {
  for (char& c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_') c = '-';
  return text;
}

/// The slower way and the longer one.
cluster::Link worse(const cluster::Link& a, const cluster::Link& b) {
  cluster::Link link = a;
  link.bandwidth = std::min(a.bandwidth, b.bandwidth);
  link.latency = std::max(a.latency, b.latency);
  return link;
}

std::vector<cluster::Link> measured_links(const FoundHosts& found) {
  std::map<std::pair<std::size_t, std::size_t>, cluster::Link> pairs;
  for (const FoundHosts::Wire& wire : found.wires) {
    const auto key = std::minmax(wire.from, wire.to);
    cluster::Link link{{NodeId(static_cast<std::int64_t>(key.first)),
                        NodeId(static_cast<std::int64_t>(key.second))},
                       wire.bandwidth,
                       wire.latency,
                       std::nullopt};
    const auto [known, is_new] = pairs.try_emplace(key, link);
    if (!is_new) known->second = worse(known->second, link);
  }
  std::vector<cluster::Link> links;
  for (auto& [key, link] : pairs) links.push_back(std::move(link));
  return links;
}

/// One for all, if they are alike: the median.
std::vector<cluster::Link> put_together(std::vector<cluster::Link> links, std::size_t nodes) {
  if (links.empty()) return links;
  std::vector<double> rates, latencies;
  for (const cluster::Link& link : links) {
    rates.push_back(link.bandwidth.value);
    latencies.push_back(link.latency.value);
  }
  std::sort(rates.begin(), rates.end());
  std::sort(latencies.begin(), latencies.end());
  if (rates.front() >= rates.back() * (1 - kAlike) || nodes == 2)
    links = {
        {{}, BytesPerSecond(rates[rates.size() / 2]), Seconds(latencies[rates.size() / 2]), {}}};
  // Pairs that were not measured, of many hosts, are taken for the worst of those that were.
  else if (links.size() < nodes * (nodes - 1) / 2)
    links.push_back({{}, BytesPerSecond(rates.front()), Seconds(latencies.back()), {}});
  for (cluster::Link& link : links) {
    link.bandwidth = BytesPerSecond(rounded(link.bandwidth.value));
    link.latency = Seconds(rounded(link.latency.value));
  }
  return links;
}

}  // namespace

Result<cluster::Cluster> make_found_cluster(const FoundHosts& found, const std::string& name) {
  cluster::Cluster cluster;
  cluster.name = name;
  std::set<std::string> names;
  for (std::size_t i = 0; i < found.hosts.size(); ++i) {
    cluster::Node node = found.clusters[i].nodes.front();
    node.host = found.hosts[i];
    if (names.contains(node.name)) node.name = as_word(node.host);
    if (!names.insert(node.name).second)
      return usage_error("probe.names", fmt::format("{} is the name of two hosts", node.name));
    for (cluster::Device device : found.clusters[i].devices) {
      device.node = NodeId(static_cast<std::int64_t>(i));
      device.name = fmt::format("{}:{}", node.name, device.index);
      cluster.devices.push_back(std::move(device));
    }
    cluster.nodes.push_back(std::move(node));
  }
  cluster.links = put_together(measured_links(found), cluster.nodes.size());
  MOTLEY_RETURN_IF_ERROR(cluster::verify_cluster(cluster, "the hosts that were found"));
  return cluster;
}

}  // namespace motley::control
