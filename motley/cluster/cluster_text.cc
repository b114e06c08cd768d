// The parser asserts that a key starts well, though input decides that ("[.") and it reports it
// itself; with NDEBUG the assertion would become an assumption of the optimizer. We want neither.
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "motley/base/text.h"
#include "motley/cluster/cluster.h"
#include "motley/cluster/kinds.h"
#include "motley/cluster/quantity_text.h"
#include "motley/cluster/violations.h"

namespace motley::cluster {
namespace {

constexpr std::string_view kSchema = "motley.cluster/1";
constexpr std::size_t kMaxCount = 1024;
constexpr std::size_t kMaxDevices = 65536;
// Dotted keys nest a table for each dot; a bound on lines bounds the depth.
constexpr std::size_t kMaxLine = 4096;
constexpr std::size_t kMaxFile = std::size_t{4} << 20;

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

/// Reads the members of one TOML table. Every error names file and line.
class TableReader {
 public:
  /// `what` names the table for people: "[[node]]".
  TableReader(const toml::table& table, std::string file, std::string what)
      : table_(&table), file_(std::move(file)), what_(std::move(what)) {}

  int line() const { return static_cast<int>(table_->source().begin.line); }

  tl::unexpected<Error> fault(int line, std::string code, const std::string& message) const {
    return usage_error(std::move(code), fmt::format("{}:{}: {}", file_, line, message));
  }

  /// Refuses the first key of the file that is not among `known`.
  Result<void> refuse_unknown(std::span<const std::string> known) const {
    const toml::key* first = nullptr;
    for (const auto& [key, node] : *table_) {
      if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
      if (first == nullptr || key.source().begin < first->source().begin) first = &key;
    }
    if (first == nullptr) return {};
    return fault(static_cast<int>(first->source().begin.line), "cluster.unknown-key",
                 fmt::format("unknown key '{}' in {}{}; known keys: {}", first->str(), what_,
                             suggestion_clause(first->str(), known), join(known, ", ")));
  }

  const toml::node* find(std::string_view key) const { return table_->get(key); }

  Result<std::optional<std::string>> text(std::string_view key) const {
    return scalar<std::string>(key, "a string");
  }
  Result<std::optional<bool>> flag(std::string_view key) const {
    return scalar<bool>(key, "true or false");
  }
  Result<std::optional<std::int64_t>> integer(std::string_view key) const {
    return scalar<std::int64_t>(key, "an integer");
  }

  /// An integer of a range that fits `int`.
  Result<int> small(std::string_view key, int fallback) const {
    MOTLEY_ASSIGN(const auto value, integer(key));
    if (!value) return fallback;
    if (*value < std::numeric_limits<int>::min() || *value > std::numeric_limits<int>::max()) {
      return fault_at(key, fmt::format("{} is too large", *value));
    }
    return static_cast<int>(*value);
  }

  Result<std::optional<double>> number(std::string_view key) const {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const std::optional<double> value = plain_number(*node);
    if (!value) return wrong_type(key, "a number");
    return value;
  }

  /// A text with a unit, or a plain number in the base unit.
  template <typename Quantity>
  Result<std::optional<Quantity>> quantity(std::string_view key,
                                           Result<Quantity> (*parse)(std::string_view)) const {
    using Rep = decltype(Quantity::value);
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    if (const auto* text = node->as_string()) {
      Result<Quantity> value = parse(text->get());
      if (!value) return fault_at(key, value.error().message);
      return *value;
    }
    if constexpr (std::is_same_v<Rep, std::int64_t>) {
      if (const auto* value = node->as_integer()) return Quantity(value->get());
      return wrong_type(key, "a text with a unit or an integer");
    } else {
      if (const auto value = plain_number(*node)) return Quantity(*value);
      return wrong_type(key, "a text with a unit or a number");
    }
  }

  /// The tables of `[[key]]`; none when the key is absent.
  Result<std::vector<TableReader>> tables(std::string_view key, const std::string& what) const {
    std::vector<TableReader> result;
    const toml::node* node = find(key);
    if (node == nullptr) return result;
    const toml::array* array = node->as_array();
    if (array == nullptr) return wrong_type(key, fmt::format("tables, each headed {}", what));
    for (const toml::node& element : *array) {
      const toml::table* table = element.as_table();
      if (table == nullptr) return wrong_type(key, fmt::format("tables, each headed {}", what));
      result.emplace_back(*table, file_, what);
    }
    return result;
  }

  Result<std::string> required_text(std::string_view key) const {
    MOTLEY_ASSIGN(auto value, text(key));
    if (!value) return missing(key);
    return std::move(*value);
  }

  tl::unexpected<Error> missing(std::string_view key) const {
    return fault(line(), "cluster.missing-key", fmt::format("{} has no key '{}'", what_, key));
  }
  tl::unexpected<Error> fault_at(std::string_view key, const std::string& message) const {
    return fault(static_cast<int>(find(key)->source().begin.line), "cluster.value",
                 fmt::format("key '{}': {}", key, message));
  }
  tl::unexpected<Error> wrong_type(std::string_view key, std::string_view wanted) const {
    return fault_at(key, fmt::format("found {}, wanted {}", type_name(*find(key)), wanted));
  }

 private:
  template <typename T>
  Result<std::optional<T>> scalar(std::string_view key, std::string_view wanted) const {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const auto* value = node->as<T>();
    if (value == nullptr) return wrong_type(key, wanted);
    return value->get();
  }

  static std::optional<double> plain_number(const toml::node& node) {
    if (const auto* value = node.as_floating_point()) return value->get();
    if (const auto* value = node.as_integer()) return static_cast<double>(value->get());
    return std::nullopt;
  }

  const toml::table* table_;
  std::string file_, what_;
};

/// Builds the cluster and remembers the line of each part.
class ClusterReader {
 public:
  explicit ClusterReader(std::string file) : file_(std::move(file)) {}

  Result<Cluster> read(const toml::table& document) {
    const TableReader top(document, file_, "the cluster file");
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
      return top.fault(static_cast<int>(top.find("transport")->source().begin.line),
                       "cluster.transport",
                       fmt::format("key 'transport': found {}, wanted auto or gloo", *transport));
    cluster_.transport = *transport;
    return {};
  }

  Result<void> check_schema(const TableReader& top) const {
    MOTLEY_ASSIGN(const auto schema, top.text("schema"));
    if (!schema) {
      return top.fault(1, "cluster.schema",
                       fmt::format("no key 'schema', wanted schema = \"{}\"", kSchema));
    }
    if (*schema == kSchema) return {};
    return top.fault(static_cast<int>(top.find("schema")->source().begin.line), "cluster.schema",
                     fmt::format("schema {}, wanted \"{}\"", quote(*schema), kSchema));
  }

  Result<void> read_node(const TableReader& table) {
    const std::vector<std::string> known = {"name",   "host",      "spot",  "price_per_hour",
                                            "notice", "bandwidth", "peers", "device"};
    MOTLEY_RETURN_IF_ERROR(table.refuse_unknown(known));
    Node node;
    MOTLEY_ASSIGN(node.name, table.required_text("name"));
    MOTLEY_ASSIGN(const auto host, table.text("host"));
    node.host = host.value_or("");
    if (host && host->empty()) return table.fault_at("host", "is empty; leave the key out");
    MOTLEY_ASSIGN(const auto spot, table.flag("spot"));
    node.spot = spot.value_or(false);
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

  // One table, `count` devices.
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
      return table.fault(table.line(), "cluster.value",
                         fmt::format("more than {} devices", kMaxDevices));
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
      return table.fault(table.line(), "cluster.value",
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
                              fmt::format("found {}, wanted node names", type_name(element)));
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

// Where the line's comment starts, or its end. Strings over several lines are not followed: no key
// takes one.
std::size_t find_comment(std::string_view line) {
  char mark = '\0';  // of the string we are in
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (mark == '\0' && c == '#') return i;
    if (mark == '\0' && (c == '"' || c == '\'')) {
      mark = c;
    } else if (mark == '"' && c == '\\') {
      ++i;
    } else if (c == mark) {
      mark = '\0';
    }
  }
  return line.size();
}

bool is_beyond_ascii(char c) { return static_cast<unsigned char>(c) >= 0x80; }

// The text in ASCII, for the parser's classification of other characters is undefined for most of
// them. Comments may hold any character, here replaced; elsewhere no key takes one. A byte order
// mark is left out.
Result<std::string> ascii_text(std::string_view text, const std::string& name) {
  if (text.size() > kMaxFile) {
    return usage_error("cluster.parse",
                       fmt::format("{}: {} bytes, wanted at most {}", name, text.size(), kMaxFile));
  }
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  std::string result(text);
  std::size_t start = 0;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.size() > kMaxLine) {
      return usage_error(
          "cluster.parse",
          fmt::format("{}:{}: a line of {} bytes, wanted at most {}; break the array "
                      "into lines",
                      name, number, line.size(), kMaxLine));
    }
    const std::size_t comment = find_comment(line);
    if (std::any_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(comment),
                    is_beyond_ascii)) {
      return usage_error("cluster.parse",
                         fmt::format("{}:{}: a character that is not ASCII, wanted ASCII outside "
                                     "comments",
                                     name, number));
    }
    const auto from = result.begin() + static_cast<std::ptrdiff_t>(start);
    std::replace_if(from, from + static_cast<std::ptrdiff_t>(line.size()), is_beyond_ascii, '?');
    start += line.size() + 1;
  }
  return result;
}

// Texts with a unit are quoted, plain numbers are not.
std::string print_quantity(const std::string& text) {
  return find_float(text) ? text : quote(text);
}

void print_node(const Node& node, std::string& out) {
  out += fmt::format("\n[[node]]\nname = {}\n", quote(node.name));
  if (!node.host.empty()) out += fmt::format("host = {}\n", quote(node.host));
  if (node.spot) out += "spot = true\n";
  if (node.price_per_hour) {
    out += fmt::format("price_per_hour = {}\n", print_float(*node.price_per_hour));
  }
  if (node.notice) out += fmt::format("notice = {}\n", print_quantity(print_seconds(*node.notice)));
  if (node.bandwidth) {
    out += fmt::format("bandwidth = {}\n", print_quantity(print_rate(*node.bandwidth)));
  }
  if (!node.peers.empty()) out += fmt::format("peers = {}\n", quote(node.peers));
}

// Everything but the place: equal devices in a row are one table with a count.
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
  // One name a line when there are many: lines are bounded.
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
  MOTLEY_ASSIGN(const std::string ascii, ascii_text(text, name));
  const toml::parse_result document = toml::parse(std::string_view(ascii), std::string_view(name));
  if (!document) {
    const toml::parse_error& error = document.error();
    return usage_error("cluster.parse",
                       fmt::format("{}:{}: not valid TOML: {}", name, error.source().begin.line,
                                   error.description()));
  }
  return ClusterReader(name).read(document.table());
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
