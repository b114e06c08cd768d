#include "motley/cluster/edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "motley/base/text.h"
#include "motley/cluster/kinds.h"

namespace motley::cluster {
namespace {

/// Limit of new devices in one edit; more are a mistake.
constexpr std::int64_t kMostNew = 1024;
constexpr std::size_t kMostNamed = 12;

template <typename Part>
std::vector<std::string> names_of(const std::vector<Part>& parts) {
  std::vector<std::string> names;
  for (const Part& part : parts) names.push_back(part.name);
  return names;
}

std::vector<std::string> kinds_of(const Cluster& cluster) {
  std::set<std::string> kinds;
  for (const Device& device : cluster.devices) kinds.insert(device.kind);
  return {kinds.begin(), kinds.end()};
}

std::vector<std::string> link_names(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Link& link : cluster.links) names.push_back(link_name(cluster, link));
  return names;
}

std::string list(const std::vector<std::string>& names) {
  if (names.empty()) return "none";
  if (names.size() <= kMostNamed) return join(names, ", ");
  return fmt::format("{} and {} more", join(std::span(names).first(kMostNamed), ", "),
                     names.size() - kMostNamed);
}

tl::unexpected<Error> fault(std::string_view edit, const std::string& what) {
  return usage_error("cluster.edit", fmt::format("'{}': {}", trim(edit), what));
}

tl::unexpected<Error> names_nothing(std::string_view edit, const Cluster& cluster,
                                    std::string_view name) {
  std::vector<std::string> all = names_of(cluster.devices);
  for (const auto& more : {names_of(cluster.nodes), kinds_of(cluster)})
    all.insert(all.end(), more.begin(), more.end());
  return fault(edit,
               fmt::format("the cluster has no '{}'{}; devices: {}; nodes: {}; kinds: {}", name,
                           suggestion_clause(name, all), list(names_of(cluster.devices)),
                           list(names_of(cluster.nodes)), list(kinds_of(cluster))));
}

std::optional<NodeId> find_node(const Cluster& cluster, std::string_view name) {
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i)
    if (cluster.nodes[i].name == name) return NodeId(static_cast<std::int64_t>(i));
  return std::nullopt;
}

/// "KIND@NODE". A kind may contain "@" itself ("a100-40g@0.41").
struct Place {
  std::string_view kind, node;
};
std::optional<Place> split_place(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string_view::npos) return std::nullopt;
  return Place{text.substr(0, at), text.substr(at + 1)};
}

/// Marks a device, or those of a node, a kind, or a kind on a node; empty if none has the name.
std::vector<bool> find_named(const Cluster& cluster, std::string_view name) {
  const std::optional<Place> place = split_place(name);
  std::vector<bool> named(cluster.devices.size(), false);
  for (std::size_t i = 0; i < named.size(); ++i) {
    const Device& device = cluster.devices[i];
    const std::string& node = cluster.node(device.node).name;
    named[i] = device.name == name || node == name || device.kind == name ||
               (place && device.kind == place->kind && node == place->node);
  }
  if (std::find(named.begin(), named.end(), true) == named.end()) named.clear();
  return named;
}

/// Reads a factor from "x2"; none for other texts.
std::optional<double> find_factor(std::string_view text) {
  if (!text.starts_with('x')) return std::nullopt;
  const auto factor = find_float(text.substr(1));
  return factor && std::isfinite(*factor) && *factor > 0 ? factor : std::nullopt;
}

/// Applies a change and records the earlier id of each device.
class Editor {
 public:
  Editor(const Cluster& cluster, std::string_view edit)
      : edit_(edit), edited_(edit_nothing(cluster)) {}

  Result<Edited> run() {
    const std::string_view text = trim(edit_);
    const auto [word, rest] = first_word(text);
    if (text.starts_with('+')) {
      MOTLEY_RETURN_IF_ERROR(add(trim(text.substr(1))));
    } else if (text.starts_with('-')) {
      MOTLEY_RETURN_IF_ERROR(remove(trim(text.substr(1))));
    } else if (word == "memory") {
      MOTLEY_RETURN_IF_ERROR(set_memory(rest));
    } else if (word == "link") {
      MOTLEY_RETURN_IF_ERROR(set_link(rest));
    } else if (word == "links") {
      MOTLEY_RETURN_IF_ERROR(set_links(rest));
    } else {
      return fault(edit_,
                   "wanted '+1 KIND@NODE', '+1 DEVICE', '-DEVICE', '-NODE', '-KIND', "
                   "'memory DEVICE 24GiB', 'link a-b x2' or 'links x2'");
    }
    number_devices(edited_.cluster);
    MOTLEY_RETURN_IF_ERROR(
        with_context(verify_cluster(edited_.cluster, fmt::format("'{}'", trim(edit_)))));
    return std::move(edited_);
  }

 private:
  static Result<void> with_context(Result<void> verified) {
    if (!verified) verified.error().code = "cluster.edit";
    return verified;
  }

  static std::pair<std::string_view, std::string_view> first_word(std::string_view text) {
    const std::size_t blank = std::min(text.find(' '), text.size());
    return {text.substr(0, blank), trim(text.substr(blank))};
  }

  static std::pair<std::string_view, std::string_view> name_and_value(std::string_view text) {
    const std::size_t blank = text.rfind(' ');
    if (blank == std::string_view::npos) return {text, {}};
    return {trim(text.substr(0, blank)), text.substr(blank + 1)};
  }

  int devices_on(NodeId node) const {
    return static_cast<int>(
        std::count_if(edited_.cluster.devices.begin(), edited_.cluster.devices.end(),
                      [&](const Device& device) { return device.node == node; }));
  }

  /// Machines are rented whole; the price with more or fewer devices is assumed proportional.
  void scale_price(NodeId id, int before) {
    Node& node = edited_.cluster.nodes[id.index()];
    if (node.price_per_hour) *node.price_per_hour *= static_cast<double>(devices_on(id)) / before;
  }

  Result<void> add(std::string_view text) {
    const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
    const std::int64_t count = digits == 0 ? 1 : find_integer(text.substr(0, digits)).value_or(0);
    if (count < 1 || count > kMostNew)
      return fault(
          edit_, fmt::format("found {} devices, wanted 1 to {}", text.substr(0, digits), kMostNew));
    MOTLEY_ASSIGN(const Device device, find_model(trim(text.substr(digits))));
    const int before = devices_on(device.node);
    auto& devices = edited_.cluster.devices;
    const auto at =
        std::upper_bound(devices.begin(), devices.end(), device.node,
                         [](NodeId node, const Device& other) { return node < other.node; });
    edited_.was.insert(edited_.was.begin() + (at - devices.begin()),
                       static_cast<std::size_t>(count), std::nullopt);
    devices.insert(at, static_cast<std::size_t>(count), device);
    scale_price(device.node, before);
    return {};
  }

  /// Finds the template of a new device, with its node.
  Result<Device> find_model(std::string_view name) const {
    const Cluster& cluster = edited_.cluster;
    for (const Device& device : cluster.devices)
      if (device.name == name) return another(device);
    const std::optional<Place> place = split_place(name);
    if (!place) return names_nothing(edit_, cluster, name);
    const std::optional<NodeId> node = find_node(cluster, place->node);
    if (!node)
      return fault(edit_, fmt::format("the cluster has no node '{}'{}; nodes: {}", place->node,
                                      suggestion_clause(place->node, names_of(cluster.nodes)),
                                      list(names_of(cluster.nodes))));
    for (const Device& device : cluster.devices)
      if (device.node == *node && device.kind == place->kind) return another(device);
    Device device{.node = *node, .name = "", .kind = std::string(place->kind)};
    if (device.kind == "cpu" || device.kind == "cuda") return device;
    MOTLEY_ASSIGN(const PlanningKind kind, find_kind(device.kind));
    device.memory = kind.memory;
    return device;
  }

  static Device another(Device device) {
    device.uuid.clear();  // belongs to the other device
    return device;
  }

  Result<void> remove(std::string_view name) {
    Cluster& cluster = edited_.cluster;
    const std::vector<bool> named = find_named(cluster, name);
    if (named.empty()) return names_nothing(edit_, cluster, name);
    if (std::find(named.begin(), named.end(), false) == named.end())
      return fault(edit_, fmt::format("no device would be left; devices: {}",
                                      list(names_of(cluster.devices))));
    std::vector<int> before;
    for (std::size_t i = 0; i < cluster.nodes.size(); ++i)
      before.push_back(devices_on(NodeId(static_cast<std::int64_t>(i))));
    std::vector<Device> devices;
    std::vector<std::optional<DeviceId>> was;
    for (std::size_t i = 0; i < named.size(); ++i) {
      if (named[i]) continue;
      devices.push_back(std::move(cluster.devices[i]));
      was.push_back(edited_.was[i]);
    }
    cluster.devices = std::move(devices);
    edited_.was = std::move(was);
    for (std::size_t i = 0; i < before.size(); ++i)
      scale_price(NodeId(static_cast<std::int64_t>(i)), before[i]);
    drop_empty_nodes();
    return {};
  }

  void drop_empty_nodes() {
    Cluster& cluster = edited_.cluster;
    std::map<NodeId, NodeId> now;
    std::vector<Node> nodes;
    for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
      const NodeId id(static_cast<std::int64_t>(i));
      if (devices_on(id) == 0) continue;
      now.emplace(id, NodeId(static_cast<std::int64_t>(nodes.size())));
      nodes.push_back(std::move(cluster.nodes[i]));
    }
    cluster.nodes = std::move(nodes);
    for (Device& device : cluster.devices) device.node = now.at(device.node);
    drop_links(now);
  }

  /// Removes lost nodes from links. If two links then join the same nodes, the preferred one stays.
  void drop_links(const std::map<NodeId, NodeId>& now) {
    Cluster& cluster = edited_.cluster;
    std::map<std::set<NodeId>, const Link*> taken;
    std::vector<std::set<NodeId>> joined;
    const auto left_of = [&](const Link& link) {
      std::set<NodeId> left;
      for (const NodeId id : link.between)
        if (const auto found = now.find(id); found != now.end()) left.insert(found->second);
      return left;
    };
    for (const Link* link : links_by_preference(cluster)) taken.emplace(left_of(*link), link);
    std::vector<Link> links;
    for (const Link& link : cluster.links) {
      const std::set<NodeId> left = left_of(link);
      const bool joins =
          link.between.empty() || left.size() >= std::min<std::size_t>(2, link.between.size());
      if (!joins || taken.at(left) != &link) continue;
      links.push_back(link);
      std::vector<NodeId>& between = links.back().between;
      std::erase_if(between, [&](NodeId id) { return now.find(id) == now.end(); });
      for (NodeId& id : between) id = now.at(id);
    }
    cluster.links = std::move(links);
  }

  Result<void> set_memory(std::string_view text) {
    const auto [name, value] = name_and_value(text);
    const std::vector<bool> named = find_named(edited_.cluster, name);
    if (named.empty()) return names_nothing(edit_, edited_.cluster, name);
    const std::optional<double> factor = find_factor(value);
    const auto bytes = parse_bytes(value);
    if (!factor && !bytes)
      return fault(edit_, fmt::format("found '{}', wanted a memory such as 24GiB, or x2", value));
    for (std::size_t i = 0; i < named.size(); ++i) {
      Device& device = edited_.cluster.devices[i];
      if (!named[i]) continue;
      if (factor && !device.memory)
        return fault(edit_, device.name + " has no limit of its memory");
      device.memory = factor ? Bytes(static_cast<std::int64_t>(std::llround(
                                   *factor * static_cast<double>(device.memory->value))))
                             : *bytes;
    }
    return {};
  }

  /// Sets a link's rate; its latency stays.
  Result<void> set_rate(std::string_view value, Link& link) const {
    if (const std::optional<double> factor = find_factor(value)) {
      link.bandwidth = link.bandwidth * *factor;
      if (link.capacity) link.capacity = *link.capacity * *factor;
      return {};
    }
    const auto rate = parse_rate(value);
    if (!rate)
      return fault(edit_, fmt::format("found '{}', wanted a rate such as 10Gbps, or x2", value));
    link.bandwidth = *rate;
    return {};
  }

  Result<void> set_link(std::string_view text) {
    Cluster& cluster = edited_.cluster;
    const auto [name, value] = name_and_value(text);
    for (Link& link : cluster.links)
      if (is_called(link, name)) return set_rate(value, link);
    const std::vector<std::string> names = link_names(cluster);
    return fault(edit_, fmt::format("the cluster has no link '{}'{}; links: {}", name,
                                    suggestion_clause(name, names), list(names)));
  }

  /// Matches a link's nodes in any order; names of nodes may contain hyphens.
  bool is_called(const Link& link, std::string_view name) const {
    if (link.between.empty()) return name == "all";
    Link other = link;
    std::sort(other.between.begin(), other.between.end());
    std::vector<std::string> parts;
    for (const std::string_view part : split(name, '-')) parts.emplace_back(part);
    std::sort(parts.begin(), parts.end());
    std::vector<std::string> wanted;
    for (const NodeId id : link.between)
      for (const std::string_view part : split(edited_.cluster.node(id).name, '-'))
        wanted.emplace_back(part);
    std::sort(wanted.begin(), wanted.end());
    return name == link_name(edited_.cluster, link) || parts == wanted;
  }

  Result<void> set_links(std::string_view value) {
    Cluster& cluster = edited_.cluster;
    if (cluster.links.empty()) return fault(edit_, "the cluster has no link");
    if (!find_factor(value))
      return fault(edit_, fmt::format("found '{}', wanted a factor such as x2", value));
    for (Link& link : cluster.links) MOTLEY_RETURN_IF_ERROR(set_rate(value, link));
    for (Node& node : cluster.nodes)
      if (node.bandwidth) node.bandwidth = *node.bandwidth * *find_factor(value);
    return {};
  }

  std::string_view edit_;
  Edited edited_;
};

}  // namespace

Edited edit_nothing(const Cluster& cluster) {
  Edited same{cluster, {}};
  for (const DeviceId id : all_devices(cluster)) same.was.emplace_back(id);
  return same;
}

std::string link_name(const Cluster& cluster, const Link& link) {
  if (link.between.empty()) return "all";
  std::vector<std::string> names;
  for (const NodeId id : link.between) names.push_back(cluster.node(id).name);
  return join(names, "-");
}

void number_devices(Cluster& cluster) {
  std::map<NodeId, int> next;
  std::map<std::pair<NodeId, std::string>, int> next_of_kind;
  for (Device& device : cluster.devices) {
    device.index = next[device.node]++;
    device.local_index = next_of_kind[{device.node, device.kind}]++;
    device.name = fmt::format("{}:{}", cluster.node(device.node).name, device.index);
  }
}

Result<Edited> edit_cluster(const Cluster& cluster, std::string_view edit) {
  return Editor(cluster, edit).run();
}

}  // namespace motley::cluster
