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

struct Node {
  std::string name;
  std::string host;  ///< host on which workers start; "" = this machine
  bool spot = false;
  /// Where it was rented, as a market calls it (docs/formats/market.md); "": not rented.
  std::string zone = "";
  std::optional<double> price_per_hour;
  std::optional<Seconds> notice;
  /// Of its network card: limits all links to other nodes together, each way; none: no limit.
  std::optional<BytesPerSecond> bandwidth;
  /// The slowest connection between two of its GPUs: "nvlink", "bus" (direct access over the bus),
  /// "host" (through the host's memory); "": unknown.
  std::string peers = "";
  bool operator==(const Node&) const = default;
};

/// One device. `name` is "node:index"; the index counts the node's devices from 0.
struct Device {
  NodeId node;
  std::string name;
  std::string kind;             ///< "cpu", "cuda", or a planning kind ("rtx4090")
  std::string model;            ///< the driver's name for it ("NVIDIA A10"); "" = unknown
  int index = 0;                ///< index within the node
  int local_index = 0;          ///< index among the node's devices of this kind (CUDA ordinal)
  int threads = 1;              ///< CPU threads of the worker
  double speed = 1.0;           ///< emulated: share of one core's time, (0, 1]; CPU only
  std::optional<Bytes> memory;  ///< limit for the worker and for planning (`room`)
  /// For a CPU: the share of a core's time that its host grants, if it is less than one core. Only
  /// the host enforces it; steps are measured whole.
  std::optional<double> quota = std::nullopt;
  /// For a GPU: its driver's id ("GPU-8a1c..."), valid at any ordinal; "": use `local_index`.
  std::string uuid = "";
  /// The assumed model where the file gives none; set by the reader of the file. Not in the file.
  std::string taken_for = "";
  /// For a GPU: its memory besides tensors, if measured; set by the reader. Not in the file.
  std::optional<Framework> framework = std::nullopt;
  /// The part of `memory` that plans leave free, for errors of prediction and for other processes,
  /// on kinds without measurements. Not in the file.
  Bytes spare = Bytes(0);
  /// Returns the memory that plans may fill; none: no limit.
  std::optional<Bytes> room() const {
    return memory ? std::optional(*memory - spare) : std::nullopt;
  }
  bool operator==(const Device&) const = default;
};

/// Connects a set of nodes (a switch, or a pair). Empty `between` = all nodes.
struct Link {
  std::vector<NodeId> between;
  BytesPerSecond bandwidth;  ///< each way, each node
  Seconds latency;
  std::optional<BytesPerSecond> capacity;  ///< limit of all simultaneous traffic; none: no limit
  bool operator==(const Link&) const = default;
};

struct Cluster {
  std::string name;
  /// How CPU devices of one machine exchange: "auto" (in shared memory) or "gloo".
  std::string transport = "auto";
  std::vector<Node> nodes;
  std::vector<Device> devices;
  std::vector<Link> links;

  const Device& device(DeviceId id) const { return devices[id.index()]; }
  const Node& node(NodeId id) const { return nodes[id.index()]; }
  bool operator==(const Cluster&) const = default;
};

inline bool is_transport(std::string_view text) { return text == "auto" || text == "gloo"; }

/// Returns whether Node::peers may have this value.
inline bool is_peers(std::string_view text) {
  return text == "nvlink" || text == "bus" || text == "host";
}

/// Returns all devices in the order of the file.
std::vector<DeviceId> all_devices(const Cluster& cluster);

/// Finds a device by name ("a:0"); usage error with a suggestion.
Result<DeviceId> find_device(const Cluster& cluster, std::string_view name);

/// Returns the price per hour of all machines of these devices; none: a machine has no price.
std::optional<double> price_per_hour(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Returns whether devices compute bitwise identically: same kind, model, number of threads.
bool are_identical(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Finds devices that are the same GPU, in groups of two or more: same UUID or, without one, same
/// host and position among a node's GPUs. Ordered by the first device of each group.
std::vector<std::vector<DeviceId>> find_shared_gpus(const Cluster& cluster,
                                                    const std::vector<DeviceId>& devices);

/// Divides the `memory` of a GPU equally among the devices that share it; before, each has the
/// memory of the whole GPU. Planning and workers respect the parts.
void part_shared_memory(Cluster& cluster, const std::vector<DeviceId>& devices);

/// Returns the links by preference: fewest nodes (`all` last), then fastest, then as listed.
std::vector<const Link*> links_by_preference(const Cluster& cluster);

/// The slowest connection within a group of devices: the smallest bandwidth and the largest latency
/// over the links of its pairs (a link's bandwidth or, if less, capacity), limited by the nodes'
/// own bandwidths if there are several nodes. Two devices on different nodes use the link that
/// joins both nodes and names the fewest (a pair's own link before a switch, `all` last; among
/// equals the fastest). Two devices of one node use no link, unless a link's `between` names only
/// that node (an emulated local rate). Empty without limits. O(sum of links' sizes squared).
struct Route {
  BytesPerSecond bandwidth;
  Seconds latency;
};
std::optional<Route> group_route(const Cluster& cluster, const std::vector<DeviceId>& devices);

/// Parses and verifies the TOML form (docs/formats/cluster.md). Errors "NAME:LINE: ...".
Result<Cluster> parse_cluster(std::string_view text, const std::string& name);
Result<Cluster> read_cluster(const std::string& path);
/// Prints canonical TOML; parse_cluster(print_cluster(c)) == c.
std::string print_cluster(const Cluster& cluster);
Result<void> verify_cluster(const Cluster& cluster, const std::string& name);
/// Returns hash_hex of the canonical text.
std::string cluster_hash(const Cluster& cluster);

}  // namespace motley::cluster
