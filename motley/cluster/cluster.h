#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cluster/framework.h"

namespace motley::cluster {

/// A host.
struct Node {
  std::string name;
  std::string host;  ///< where workers start; "" = this machine
  bool spot = false;
  /// Where it was rented, as a market names it (docs/formats/market.md); "": it is one's own.
  std::string zone = "";
  std::optional<double> price_per_hour;
  std::optional<Seconds> notice;
  /// Of its network card: all its links to other nodes together, each way; none: no more limit
  /// than theirs.
  std::optional<BytesPerSecond> bandwidth;
  /// The slowest way in which two of its GPUs reach each other: "nvlink", "bus" (each other's
  /// memory over the bus), "host" (through the host's memory); "": not known.
  std::string peers = "";
  bool operator==(const Node&) const = default;
};

/// One device. `name` is "node:index", the index counting the node's devices from 0.
struct Device {
  NodeId node;
  std::string name;
  std::string kind;             ///< "cpu", "cuda", or a planning kind ("rtx4090")
  std::string model;            ///< what the driver calls it ("NVIDIA A10"); "" = not said
  int index = 0;                ///< index within the node
  int local_index = 0;          ///< index among the node's devices of this kind (CUDA ordinal)
  int threads = 1;              ///< CPU threads of the worker
  double speed = 1.0;           ///< emulated: share of one core's time, (0, 1]; CPU only
  std::optional<Bytes> memory;  ///< limit that the worker enforces, and planning (`room`)
  /// Of a CPU: the share of a core's time that its host grants, where that is less than one core.
  /// Nobody holds it to that but the host; its steps are measured whole.
  std::optional<double> quota = std::nullopt;
  /// Of a GPU, as its driver writes it ("GPU-8a1c..."): its worker finds it by that, whatever
  /// ordinal it has; "": by `local_index`.
  std::string uuid = "";
  /// What it is taken for where the file names no model: whoever reads it may know. Not in the
  /// file.
  std::string taken_for = "";
  /// Of a GPU: what it holds beside tensors, where whoever reads the file knows it measured. Not in
  /// the file.
  std::optional<Framework> framework = std::nullopt;
  /// Of `memory`: what plans leave free for what they need more than is predicted, and for others,
  /// where nobody measured the kind. Not in the file.
  Bytes spare = Bytes(0);
  /// What plans may fill; none: no limit.
  std::optional<Bytes> room() const {
    return memory ? std::optional(*memory - spare) : std::nullopt;
  }
  bool operator==(const Device&) const = default;
};

/// What connects a set of nodes (a switch, or a pair). Empty `between` = all nodes.
struct Link {
  std::vector<NodeId> between;
  BytesPerSecond bandwidth;  ///< each way, each node
  Seconds latency;
  std::optional<BytesPerSecond> capacity;  ///< all that crosses it at a time; none: no limit
  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;
  /// How CPU devices of one machine exchange: "auto" (in shared memory), or "gloo" as between
  /// machines.
  std::string transport = "auto";
  std::vector<Node> nodes;
  std::vector<Device> devices;
  std::vector<Link> links;

  const Device& device(DeviceId id) const { return devices[id.index()]; }
  const Node& node(NodeId id) const { return nodes[id.index()]; }
  bool operator==(const Cluster&) const = default;
};

/// Is it one that a cluster, a job or a flag may name?
inline bool is_transport(std::string_view text) { return text == "auto" || text == "gloo"; }

/// May Node::peers be that?
inline bool is_peers(std::string_view text) {
  return text == "nvlink" || text == "bus" || text == "host";
}

/// In the order of the file.
std::vector<DeviceId> all_devices(const Cluster& cluster);

/// By name ("a:0"); usage error with a suggestion.
Result<DeviceId> find_device(const Cluster& cluster, std::string_view name);

/// An hour of all machines that these devices are of, whether they work or not; none: some has no
/// price.
std::optional<double> price_per_hour(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Do the devices give equal numbers for equal work, to the last bit: one kind and model, as many
/// threads, which sum in parts?
bool are_identical(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Those of the devices that are one GPU, two or more each: of one UUID or, where none is said, one
/// host and the same place among a node's GPUs. In the order of the first of each.
std::vector<std::vector<DeviceId>> find_shared_gpus(const Cluster& cluster,
                                                    const std::vector<DeviceId>& devices);

/// `memory` of a GPU that several of the devices are is the GPU's; afterwards each has an equal
/// part of it for itself, which planning respects and its worker enforces.
void part_shared_memory(Cluster& cluster, const std::vector<DeviceId>& devices);

/// The links in the order in which pairs of nodes take them: fewest nodes first (`all` is last),
/// then fastest, then as listed.
std::vector<const Link*> links_by_preference(const Cluster& cluster);

/// The slowest link that a group of devices must cross: least bandwidth, largest latency over the
/// links its pairs use (a link's bandwidth or, if less, capacity), and where there are several
/// nodes the least of their own bandwidths. Two devices on different nodes use the link that joins
/// both nodes and names the fewest (a pair's own link comes before a switch, `all` is last; of
/// equals the fastest). Two devices of one node use no link, unless a link's `between` names that
/// node alone (an emulated local rate). Empty when nothing limits them. O(sum of links' sizes
/// squared).
struct Route {
  BytesPerSecond bandwidth;
  Seconds latency;
};
std::optional<Route> group_route(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Parses the TOML form (docs/formats/cluster.md) and verifies it. Errors "NAME:LINE: ...",
/// unknown keys with a suggestion.
Result<Cluster> parse_cluster(std::string_view text, const std::string& name);
Result<Cluster> read_cluster(const std::string& path);
/// Canonical TOML; parse_cluster(print_cluster(c)) == c.
std::string print_cluster(const Cluster& cluster);
Result<void> verify_cluster(const Cluster& cluster, const std::string& name);
/// hash_hex of the canonical text.
std::string cluster_hash(const Cluster& cluster);

}  // namespace motley::cluster
