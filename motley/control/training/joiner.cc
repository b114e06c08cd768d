#include "motley/control/training/joiner.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "motley/base/file.h"
#include "motley/base/json.h"
#include "motley/cluster/quantity_text.h"

namespace motley::control {
namespace {

constexpr const char* kJoinersSchema = "motley.newcomers/1";

NodeId node_at(std::size_t index) { return NodeId(static_cast<std::int64_t>(index)); }

/// Returns the least bandwidth and the largest latency of all links.
std::optional<cluster::Route> slowest(const cluster::Cluster& cluster) {
  std::optional<cluster::Route> route;
  for (const cluster::Link& link : cluster.links) {
    if (!route) route = cluster::Route{link.bandwidth, link.latency};
    route->bandwidth = std::min(route->bandwidth, link.bandwidth);
    route->latency = std::max(route->latency, link.latency);
  }
  return route;
}

std::string route_text(const cluster::Route& route) {
  return cluster::short_rate(route.bandwidth) + ", " + cluster::short_seconds(route.latency);
}

/// Adds a link to each other node; existing links stay.
void add_links(cluster::Cluster& cluster, NodeId node, const cluster::Route& route) {
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i)
    if (node_at(i) != node)
      cluster.links.push_back({{node_at(i), node}, route.bandwidth, route.latency, std::nullopt});
}

}  // namespace

Result<cluster::Cluster> parse_joiner(const std::string& text) {
  MOTLEY_ASSIGN(cluster::Cluster joiner, cluster::parse_cluster(text, "newcomer"));
  if (joiner.devices.size() != 1)
    return usage_error(
        "elastic.newcomer",
        fmt::format("joining device: found {} devices, wanted one", joiner.devices.size()));
  const std::string& kind = joiner.devices[0].kind;
  if (kind != "cpu" && kind != "cuda")
    return usage_error("elastic.newcomer",
                       "joining device: found kind '" + kind +
                           "': devices of kind cpu or cuda may come to a run that has not named "
                           "them");
  const bool is_joined =
      joiner.links.empty() || (joiner.links.size() == 1 && joiner.links[0].between.empty());
  if (!is_joined)
    return usage_error("elastic.newcomer",
                       "joining device: found links between nodes, wanted one of all, or none");
  return joiner;
}

Result<std::string> add_joiner(const cluster::Cluster& joiner, cluster::Cluster& cluster) {
  cluster::Cluster grown = cluster;
  const std::string& name = joiner.nodes[0].name;
  const auto known = std::find_if(grown.nodes.begin(), grown.nodes.end(),
                                  [&](const cluster::Node& each) { return each.name == name; });
  const NodeId node = node_at(static_cast<std::size_t>(known - grown.nodes.begin()));
  cluster::Device device = joiner.devices[0];
  device.node = node;
  if (known == grown.nodes.end()) {
    grown.nodes.push_back(joiner.nodes[0]);
    grown.devices.push_back(std::move(device));
  } else {
    *known = joiner.nodes[0];
    for (cluster::Device& each : grown.devices)
      if (each.node == node) each = device;
    std::erase_if(grown.links, [&](const cluster::Link& link) {
      return std::count(link.between.begin(), link.between.end(), node) > 0;
    });
  }
  const auto all = std::find_if(grown.links.begin(), grown.links.end(),
                                [](const cluster::Link& link) { return link.between.empty(); });
  std::string words = "no link limits it";
  if (!joiner.links.empty()) {
    const cluster::Route own{joiner.links[0].bandwidth, joiner.links[0].latency};
    add_links(grown, node, own);
    words = "joined by " + route_text(own) + ", as it says";
  } else if (all != grown.links.end()) {
    words = "joined by " + route_text({all->bandwidth, all->latency}) +
            ", as the cluster's link of all says";
  } else if (const auto least = slowest(grown)) {
    add_links(grown, node, *least);
    words = "joined by " + route_text(*least) +
            ", the least of the cluster's links, as nothing says more";
  }
  MOTLEY_RETURN_IF_ERROR(cluster::verify_cluster(grown, "newcomer"));
  cluster = std::move(grown);
  return words;
}

std::string print_joiners(const std::vector<std::string>& texts) {
  return Json{{"schema", kJoinersSchema}, {"newcomers", texts}}.dump(2) + "\n";
}

Result<std::vector<std::string>> read_joiners(const std::string& path) {
  if (!std::filesystem::exists(path)) return std::vector<std::string>();
  MOTLEY_ASSIGN(const std::string text, read_file(path));
  MOTLEY_ASSIGN(const Json json, parse_json(text, path));
  MOTLEY_ASSIGN(JsonObject object, JsonObject::make(json, path));
  MOTLEY_ASSIGN(const std::string schema, object.string("schema"));
  if (schema != kJoinersSchema)
    return usage_error("elastic.newcomers", fmt::format("{}: found schema '{}', wanted '{}'", path,
                                                        schema, kJoinersSchema));
  MOTLEY_ASSIGN(std::vector<std::string> texts, object.strings("newcomers"));
  MOTLEY_RETURN_IF_ERROR(object.refuse_unknown());
  return texts;
}

}  // namespace motley::control
