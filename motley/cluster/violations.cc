#include "motley/cluster/violations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "motley/base/text.h"
#include "motley/cluster/kinds.h"

namespace motley::cluster {
namespace {

// Names are JSON keys and parts of messages and of texts split at blanks.
constexpr std::size_t kMaxName = 64;
constexpr int kMaxThreads = 1024;

bool is_word(std::string_view text, std::string_view extra) {
  const auto allowed = [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           extra.find(c) != std::string_view::npos;
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), allowed);
}

// Returns whether a free text is one line of ASCII, because the hashed text consists of lines.
bool is_line(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

bool is_amount(double value) { return std::isfinite(value) && value >= 0; }

bool is_rate(BytesPerSecond rate) { return std::isfinite(rate.value) && rate.value > 0; }

class Checker {
 public:
  explicit Checker(const Cluster& cluster) : cluster_(cluster) {}

  std::vector<Violation> run() {
    check_cluster();
    for (std::size_t i = 0; i < cluster_.nodes.size(); ++i) check_node(i);
    for (std::size_t i = 0; i < cluster_.devices.size(); ++i) check_device(i);
    for (std::size_t i = 0; i < cluster_.links.size(); ++i) check_link(i);
    return std::move(found_);
  }

 private:
  void report(ViolatedPart part, std::size_t index, std::string message) {
    found_.push_back({part, index, std::move(message)});
  }

  bool has_node(NodeId id) const { return !id.is_none() && id.index() < cluster_.nodes.size(); }

  void check_cluster() {
    if (cluster_.name.empty() || !is_line(cluster_.name)) {
      report(ViolatedPart::kCluster, 0,
             fmt::format("cluster name {}, wanted one line of ASCII text", quote(cluster_.name)));
    }
    if (cluster_.nodes.empty())
      report(ViolatedPart::kCluster, 0, "no [[node]], wanted at least one");
    for (const Device& device : cluster_.devices) ++devices_on_[device.node];
  }

  void check_node(std::size_t index) {
    const Node& node = cluster_.nodes[index];
    const auto fault = [&](const std::string& text) {
      report(ViolatedPart::kNode, index, fmt::format("node '{}': {}", node.name, text));
    };
    if (!is_word(node.name, "_.-") || node.name.size() > kMaxName) {
      fault(fmt::format("name {}, wanted 1 to {} letters, digits, '_', '.' or '-'",
                        quote(node.name), kMaxName));
    }
    if (!node_names_.insert(node.name).second) fault("name is used twice");
    // Goes to ssh and resolvers: no blanks, and no leading '-', which would be read as an option.
    if (!node.host.empty() && (!is_word(node.host, "_.-:@%[]") || node.host[0] == '-')) {
      fault(fmt::format("host {}, wanted a host name or address", quote(node.host)));
    }
    if (!node.zone.empty() && !is_word(node.zone, "_.-"))
      fault(fmt::format("zone {}, wanted letters, digits, '_', '.' or '-'", quote(node.zone)));
    if (node.price_per_hour && !is_amount(*node.price_per_hour)) {
      fault(fmt::format("price_per_hour {}, wanted >= 0", print_float(*node.price_per_hour)));
    }
    if (node.notice && !is_amount(node.notice->value)) {
      fault(fmt::format("notice of {} s, wanted >= 0", print_float(node.notice->value)));
    }
    if (node.bandwidth && !is_rate(*node.bandwidth)) {
      fault(fmt::format("bandwidth of {} bytes/s, wanted > 0", print_float(node.bandwidth->value)));
    }
    if (!node.peers.empty() && !is_peers(node.peers))
      fault(fmt::format("peers {}, wanted nvlink, bus or host", quote(node.peers)));
    if (devices_on_[NodeId(static_cast<std::int64_t>(index))] == 0) {
      fault("no [[node.device]], wanted at least one");
    }
  }

  void check_device(std::size_t index) {
    const Device& device = cluster_.devices[index];
    const auto fault = [&](const std::string& text) {
      report(ViolatedPart::kDevice, index, fmt::format("device '{}': {}", device.name, text));
    };
    check_place(index, fault);
    const std::vector<std::string> kinds = known_kinds();
    if (std::find(kinds.begin(), kinds.end(), device.kind) == kinds.end() &&
        !find_kind(device.kind)) {
      fault(fmt::format("unknown kind {}{}; wanted one of {}", quote(device.kind),
                        suggestion_clause(device.kind, kinds), join(kinds, ", ")));
    }
    if (!is_line(device.model)) {
      fault(fmt::format("model {}, wanted one line of ASCII text", quote(device.model)));
    }
    if (device.threads < 1 || device.threads > kMaxThreads) {
      fault(fmt::format("threads = {}, wanted 1 to {}", device.threads, kMaxThreads));
    }
    // This form also refuses NaN.
    if (!(device.speed > 0 && device.speed <= 1)) {
      fault(fmt::format("speed = {}, wanted > 0 and <= 1", print_float(device.speed)));
    } else if (device.speed != 1 && device.kind != "cpu") {
      fault(fmt::format("speed = {} on kind \"{}\": only \"cpu\" devices can be slowed down",
                        print_float(device.speed), device.kind));
    }
    if (device.quota && !(*device.quota > 0 && *device.quota < 1 && device.kind == "cpu"))
      fault(fmt::format("quota = {}, wanted > 0 and < 1, of a \"cpu\" device",
                        print_float(*device.quota)));
    if (!device.uuid.empty() && (device.kind != "cuda" || !is_line(device.uuid)))
      fault(fmt::format("uuid {}, wanted one line of ASCII text, of a \"cuda\" device",
                        quote(device.uuid)));
    // A planning kind gets it from the table when the file is read; without it, any plan would fit.
    if (!device.memory && device.kind != "cpu" && device.kind != "cuda") {
      fault(fmt::format("kind \"{}\" without memory", device.kind));
    }
    if (device.memory && device.memory->value <= 0) {
      fault(fmt::format("memory of {} bytes, wanted > 0", device.memory->value));
    }
  }

  // Checks that devices are in node order and numbered within the node and within their kind.
  template <typename Fault>
  void check_place(std::size_t index, const Fault& fault) {
    const Device& device = cluster_.devices[index];
    if (!has_node(device.node)) {
      fault(fmt::format("node number {} does not exist", device.node.value));
      return;
    }
    if (index > 0 && cluster_.devices[index - 1].node > device.node) {
      fault("comes after a device of a later node");
    }
    const int wanted = next_index_[device.node]++;
    const int local = next_local_[{device.node, device.kind}]++;
    const std::string name = fmt::format("{}:{}", cluster_.node(device.node).name, wanted);
    if (device.index != wanted || device.local_index != local || device.name != name) {
      fault(fmt::format("has index {} and local index {}, wanted '{}' with {} and {}", device.index,
                        device.local_index, name, wanted, local));
    }
  }

  void check_link(std::size_t index) {
    const Link& link = cluster_.links[index];
    const auto fault = [&](const std::string& text) {
      report(ViolatedPart::kLink, index, fmt::format("link {}: {}", index, text));
    };
    std::set<NodeId> joined;
    for (const NodeId id : link.between) {
      if (!has_node(id)) {
        fault(fmt::format("node number {} does not exist", id.value));
      } else if (!joined.insert(id).second) {
        fault(fmt::format("names node '{}' twice", cluster_.node(id).name));
      }
    }
    // The order of two links over the same nodes would be arbitrary.
    const auto [same, is_new] = link_of_.emplace(joined, index);
    if (!is_new) fault(fmt::format("joins the same nodes as link {}", same->second));
    if (!is_rate(link.bandwidth)) {
      fault(fmt::format("bandwidth of {} bytes/s, wanted > 0", print_float(link.bandwidth.value)));
    }
    if (link.capacity && !is_rate(*link.capacity)) {
      fault(fmt::format("capacity of {} bytes/s, wanted > 0", print_float(link.capacity->value)));
    }
    if (!is_amount(link.latency.value)) {
      fault(fmt::format("latency of {} s, wanted >= 0", print_float(link.latency.value)));
    }
  }

  const Cluster& cluster_;
  std::vector<Violation> found_;
  std::set<std::string> node_names_;
  std::map<NodeId, int> devices_on_, next_index_;
  std::map<std::pair<NodeId, std::string>, int> next_local_;
  std::map<std::set<NodeId>, std::size_t> link_of_;
};

}  // namespace

std::vector<Violation> find_violations(const Cluster& cluster) { return Checker(cluster).run(); }

Result<void> verify_cluster(const Cluster& cluster, const std::string& name) {
  std::vector<std::string> lines;
  for (const Violation& violation : find_violations(cluster)) {
    lines.push_back(fmt::format("{}: {}", name, violation.message));
  }
  if (lines.empty()) return {};
  return usage_error("cluster.invalid", join(lines, "\n"));
}

}  // namespace motley::cluster
