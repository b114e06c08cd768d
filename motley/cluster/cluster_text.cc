#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "motley/base/text.h"
#include "motley/cluster/cluster.h"
#include "motley/cluster/kinds.h"
#include "motley/cluster/quantity_text.h"
#include "motley/cluster/toml_table.h"
#include "motley/cluster/violations.h"

namespace motley::cluster {
namespace {

constexpr std::string_view kSchema = "motley.cluster/1";
constexpr std::size_t kMaxCount = 1024;
constexpr std::size_t kMaxDevices = 65536;

/// Builds the cluster and remembers the line of each part.
class ClusterReader {
 public:
  explicit ClusterReader(std::string file) : file_(std::move(file)) {}

  Result<Cluster> read(const toml::table& document) {
    const TableReader top(document, {file_, "cluster"}, "the cluster file");
    MOTLEY_RETURN_IF_ERROR(check_schema(top));
    const std::vector<std::string> known = {"schema", "name", "transport", "node", "link"};
    MOTLEY_RETURN_IF_ERROR(top.refuse_unknown(known));
    MOTLEY_ASSIGN(cluster_.name, top.required_text("name"));
    MOTLEY_RETURN_IF_ERROR(read_transport(top));
    name_line_ = static_cast<int>(top.find("name")->source().begin.line);
    MOTLEY_ASSIGN(const auto nodes, top.tables("node", "[[node]]"));
    for (const TableReader& node : nodes) MOTLEY_RETURN_IF_ERROR(read_node(node));
    MOTLEY_ASSIGN(const auto links, top.tables("link", "[[link]]"));
    for (const TableReader& link : links) MOTLEY_RETURN_IF_ERROR(read_link(link));
    MOTLEY_RETURN_IF_ERROR(verify());
    return std::move(cluster_);
  }

 private:
  Result<void> read_transport(const TableReader& top) {
    MOTLEY_ASSIGN(const auto transport, top.text("transport"));
    if (!transport) return {};
    if (!is_transport(*transport))
      return top.fault(static_cast<int>(top.find("transport")->source().begin.line), "transport",
                       fmt::format("key 'transport': found {}, wanted auto or gloo", *transport));
    cluster_.transport = *transport;
    return {};
  }

  Result<void> check_schema(const TableReader& top) const {
    MOTLEY_ASSIGN(const auto schema, top.text("schema"));
    if (!schema) {
      return top.fault(1, "schema",
                       fmt::format("no key 'schema', wanted schema = \"{}\"", kSchema));
    }
    if (*schema == kSchema) return {};
    return top.fault(static_cast<int>(top.find("schema")->source().begin.line), "schema",
                     fmt::format("schema {}, wanted \"{}\"", quote(*schema), kSchema));
  }

  Result<void> read_node(const TableReader& table) {
    const std::vector<std::string> known = {
        "name", "host", "spot", "zone", "price_per_hour", "notice", "bandwidth", "peers", "device"};
    MOTLEY_RETURN_IF_ERROR(table.refuse_unknown(known));
    Node node;
    MOTLEY_ASSIGN(node.name, table.required_text("name"));
    MOTLEY_ASSIGN(const auto host, table.text("host"));
    node.host = host.value_or("");
    if (host && host->empty()) return table.fault_at("host", "is empty; leave the key out");
    MOTLEY_ASSIGN(const auto spot, table.flag("spot"));
    node.spot = spot.value_or(false);
    MOTLEY_ASSIGN(const auto zone, table.text("zone"));
    node.zone = zone.value_or("");
    MOTLEY_ASSIGN(node.price_per_hour, table.number("price_per_hour"));
    MOTLEY_ASSIGN(node.notice, table.quantity<Seconds>("notice", parse_seconds));
    MOTLEY_ASSIGN(node.bandwidth, table.quantity<BytesPerSecond>("bandwidth", parse_rate));
    MOTLEY_ASSIGN(const auto peers, table.text("peers"));
    node.peers = peers.value_or("");
    cluster_.nodes.push_back(std::move(node));
    node_lines_.push_back(table.line());
    device_count_ = 0;
    kind_count_.clear();
    MOTLEY_ASSIGN(const auto devices, table.tables("device", "[[node.device]]"));
    for (const TableReader& device : devices) MOTLEY_RETURN_IF_ERROR(read_devices(device));
    return {};
  }

  Result<void> read_devices(const TableReader& table) {
    const std::vector<std::string> known = {"kind",  "model", "count",  "threads",
                                            "speed", "quota", "memory", "uuid"};
    MOTLEY_RETURN_IF_ERROR(table.refuse_unknown(known));
    Device device;
    MOTLEY_ASSIGN(device.kind, table.required_text("kind"));
    MOTLEY_ASSIGN(const auto model, table.text("model"));
    device.model = model.value_or("");
    MOTLEY_ASSIGN(const auto count, table.integer("count"));
    if (count && (*count < 1 || *count > std::int64_t{kMaxCount})) {
      return table.fault_at("count", fmt::format("found {}, wanted 1 to {}", *count, kMaxCount));
    }
    MOTLEY_ASSIGN(device.threads, table.small("threads", 1));
    MOTLEY_ASSIGN(const auto speed, table.number("speed"));
    device.speed = speed.value_or(1.0);
    MOTLEY_ASSIGN(device.quota, table.number("quota"));
    MOTLEY_ASSIGN(device.memory, table.quantity<Bytes>("memory", parse_bytes));
    if (!device.memory) device.memory = memory_of_kind(device.kind);
    MOTLEY_ASSIGN(const auto uuid, table.text("uuid"));
    device.uuid = uuid.value_or("");
    if (cluster_.devices.size() + count.value_or(1) > kMaxDevices) {
      return table.fault(table.line(), "value", fmt::format("more than {} devices", kMaxDevices));
    }
    for (std::int64_t i = 0; i < count.value_or(1); ++i) add_device(device, table.line());
    return {};
  }

  static std::optional<Bytes> memory_of_kind(const std::string& name) {
    const auto kind = find_kind(name);
    return kind ? kind->memory : std::nullopt;
  }

  void add_device(Device device, int line) {
    device.node = NodeId(static_cast<std::int64_t>(cluster_.nodes.size()) - 1);
    device.index = device_count_++;
    device.local_index = kind_count_[device.kind]++;
    device.name = fmt::format("{}:{}", cluster_.nodes.back().name, device.index);
    cluster_.devices.push_back(std::move(device));
    device_lines_.push_back(line);
  }

  Result<void> read_link(const TableReader& table) {
    const std::vector<std::string> known = {"between", "all", "bandwidth", "latency", "capacity"};
    MOTLEY_RETURN_IF_ERROR(table.refuse_unknown(known));
    Link link;
    MOTLEY_ASSIGN(const auto all, table.flag("all"));
    const bool has_between = table.find("between") != nullptr;
    if (all.value_or(false) == has_between) {
      return table.fault(table.line(), "value",
                         "[[link]] wants either between = [\"a\", \"b\"] or all = true");
    }
    if (has_between) {
      MOTLEY_ASSIGN(link.between, read_between(table));
    }
    MOTLEY_ASSIGN(const auto bandwidth, table.quantity<BytesPerSecond>("bandwidth", parse_rate));
    if (!bandwidth) return table.missing("bandwidth");
    link.bandwidth = *bandwidth;
    MOTLEY_ASSIGN(const auto latency, table.quantity<Seconds>("latency", parse_seconds));
    link.latency = latency.value_or(Seconds(0.0));
    MOTLEY_ASSIGN(link.capacity, table.quantity<BytesPerSecond>("capacity", parse_rate));
    cluster_.links.push_back(std::move(link));
    link_lines_.push_back(table.line());
    return {};
  }

  Result<std::vector<NodeId>> read_between(const TableReader& table) const {
    const toml::array* names = table.find("between")->as_array();
    if (names == nullptr) return table.wrong_type("between", "an array of node names");
    if (names->empty()) return table.fault_at("between", "is empty, wanted node names");
    std::vector<NodeId> between;
    for (const toml::node& element : *names) {
      const auto* name = element.as_string();
      if (name == nullptr) {
        return table.fault_at("between",
                              fmt::format("found {}, wanted node names", toml_type(element)));
      }
      MOTLEY_ASSIGN(const NodeId node, find_node(table, name->get()));
      between.push_back(node);
    }
    return between;
  }

  Result<NodeId> find_node(const TableReader& table, const std::string& name) const {
    std::vector<std::string> names;
    for (std::size_t i = 0; i < cluster_.nodes.size(); ++i) {
      if (cluster_.nodes[i].name == name) return NodeId(static_cast<std::int64_t>(i));
      names.push_back(cluster_.nodes[i].name);
    }
    return table.fault_at("between",
                          fmt::format("unknown node '{}'{}; nodes: {}", name,
                                      suggestion_clause(name, names), join(names, ", ")));
  }

  int line_of(const Violation& violation) const {
    switch (violation.part) {
      case ViolatedPart::kNode:
        return node_lines_[violation.index];
      case ViolatedPart::kDevice:
        return device_lines_[violation.index];
      case ViolatedPart::kLink:
        return link_lines_[violation.index];
      case ViolatedPart::kCluster:
        break;
    }
    return name_line_;
  }

  Result<void> verify() const {
    std::vector<std::string> lines;
    for (const Violation& violation : find_violations(cluster_)) {
      lines.push_back(fmt::format("{}:{}: {}", file_, line_of(violation), violation.message));
    }
    if (lines.empty()) return {};
    return usage_error("cluster.invalid", join(lines, "\n"));
  }

  std::string file_;
  Cluster cluster_;
  int name_line_ = 1;
  std::vector<int> node_lines_, device_lines_, link_lines_;
  int device_count_ = 0;                   // of the node being read
  std::map<std::string, int> kind_count_;  // of the node being read
};

std::string print_quantity(const std::string& text) {
  return find_float(text) ? text : quote(text);
}

void print_node(const Node& node, std::string& out) {
  out += fmt::format("\n[[node]]\nname = {}\n", quote(node.name));
  if (!node.host.empty()) out += fmt::format("host = {}\n", quote(node.host));
  if (node.spot) out += "spot = true\n";
  if (!node.zone.empty()) out += fmt::format("zone = {}\n", quote(node.zone));
  if (node.price_per_hour) {
    out += fmt::format("price_per_hour = {}\n", print_float(*node.price_per_hour));
  }
  if (node.notice) out += fmt::format("notice = {}\n", print_quantity(print_seconds(*node.notice)));
  if (node.bandwidth) {
    out += fmt::format("bandwidth = {}\n", print_quantity(print_rate(*node.bandwidth)));
  }
  if (!node.peers.empty()) out += fmt::format("peers = {}\n", quote(node.peers));
}

// Compares everything but the index: equal devices in a row become one table with a count.
bool is_same_table(const Device& a, const Device& b) {
  return a.node == b.node && a.kind == b.kind && a.model == b.model && a.threads == b.threads &&
         a.speed == b.speed && a.quota == b.quota && a.memory == b.memory && a.uuid == b.uuid;
}

void print_devices(const Device& device, std::size_t count, std::string& out) {
  out += fmt::format("  [[node.device]]\n  kind = {}\n", quote(device.kind));
  if (!device.model.empty()) out += fmt::format("  model = {}\n", quote(device.model));
  if (count > 1) out += fmt::format("  count = {}\n", count);
  if (device.threads != 1) out += fmt::format("  threads = {}\n", device.threads);
  if (device.speed != 1) out += fmt::format("  speed = {}\n", print_float(device.speed));
  if (device.quota) out += fmt::format("  quota = {}\n", print_float(*device.quota));
  if (device.memory) out += fmt::format("  memory = \"{}\"\n", print_bytes(*device.memory));
  if (!device.uuid.empty()) out += fmt::format("  uuid = {}\n", quote(device.uuid));
}

void print_link(const Cluster& cluster, const Link& link, std::string& out) {
  std::vector<std::string> names;
  for (const NodeId id : link.between) names.push_back(quote(cluster.node(id).name));
  out += "\n[[link]]\n";
  // Many names are printed one per line: line length is bounded.
  const std::string_view separator = names.size() > 8 ? ",\n  " : ", ";
  out += names.empty() ? "all = true\n" : fmt::format("between = [{}]\n", join(names, separator));
  out += fmt::format("bandwidth = {}\n", print_quantity(print_rate(link.bandwidth)));
  out += fmt::format("latency = {}\n", print_quantity(print_seconds(link.latency)));
  if (link.capacity) {
    out += fmt::format("capacity = {}\n", print_quantity(print_rate(*link.capacity)));
  }
}

}  // namespace

Result<Cluster> parse_cluster(std::string_view text, const std::string& name) {
  const TableReader::Source source{name, "cluster"};
  MOTLEY_ASSIGN(const toml::table document, parse_toml(text, source));
  return ClusterReader(name).read(document);
}

std::string print_cluster(const Cluster& cluster) {
  std::string out = fmt::format("schema = \"{}\"\nname = {}\n", kSchema, quote(cluster.name));
  if (cluster.transport != "auto") out += fmt::format("transport = {}\n", quote(cluster.transport));
  std::size_t next = 0;
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    print_node(cluster.nodes[i], out);
    while (next < cluster.devices.size() && cluster.devices[next].node.index() == i) {
      std::size_t end = next + 1;
      while (end < cluster.devices.size() && end - next < kMaxCount &&
             is_same_table(cluster.devices[next], cluster.devices[end])) {
        ++end;
      }
      print_devices(cluster.devices[next], end - next, out);
      next = end;
    }
  }
  for (const Link& link : cluster.links) print_link(cluster, link, out);
  return out;
}

}  // namespace motley::cluster
