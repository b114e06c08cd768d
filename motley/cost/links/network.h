#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/units.h"
#include "motley/cluster/cluster.h"

namespace motley::cost {

/// A capacity that transfers share: one direction of a pair link, of a node's connection to a
/// switch, of its network card or of a device's port inside its node; or a whole switch.
struct NetworkLink {
  std::string name;  ///< for people: "a>b", "a>all", "all>a", "a:0>a", "a out", "a in", "all"
  BytesPerSecond capacity;
  bool operator==(const NetworkLink&) const = default;
};

/// The links that a message from one device to another crosses, each once, in order.
struct Path {
  std::vector<std::int32_t> links;
  Seconds latency;
  bool operator==(const Path&) const = default;
};

/// The numbered links of a cluster, and the path of each pair of devices.
///
/// - A link between two nodes becomes two, one per direction, each with its bandwidth.
/// - A link between more nodes is a switch that serves all at once: two links per node, out and in.
/// - A capacity of a link, and a bandwidth of a node (out and in), add one more link for all their
///   traffic.
/// - A link that names a single node is a switch among that node's devices. Without one, devices of
///   known kinds have ports as fast as what joins them: the peer link (NVLink, Infinity Fabric) if
///   all of the node are of one kind and it has one, else the host link; both are rates before
///   protocol overhead in the table of kinds. Devices without either are not limited.
///
/// Pairs on different nodes take the link that Cluster selects; without one, nothing limits them. A
/// node's devices share its NICs; the path between a device and the NIC is not modelled.
///
/// Example: nodes a, b, c on one switch of 1 GB/s, links 0 "a>all", 1 "all>a", 2 "b>all", ...: from
/// a to c 0 and 5; from b to c 2 and 5. Both at once get 0.5 GB/s, as they share 5.
class Network {
 public:
  /// O(pairs of nodes + sum of the links' sizes squared).
  explicit Network(const cluster::Cluster& cluster);

  const std::vector<NetworkLink>& links() const { return links_; }
  /// Returns each link's capacity in bytes/s, as FlowNetwork needs them.
  std::vector<double> capacities() const;
  /// Returns an empty path for a device and itself. O(log nodes).
  Path path(DeviceId from, DeviceId to) const;
  /// Appends the path to `links` and returns the latency of a message.
  Seconds add_path(DeviceId from, DeviceId to, std::vector<std::int32_t>& links) const;
  Seconds latency(DeviceId from, DeviceId to) const;
  NodeId node(DeviceId device) const { return nodes_[device.index()]; }
  /// The path between two nodes: links of the first alone, of both, of the second alone.
  struct Way {
    std::vector<std::int32_t> out, between, in;
    Seconds latency;
  };
  Way way(NodeId from, NodeId to) const;
  /// A device's own links inside its node; -1: none.
  struct Ports {
    std::int32_t out = -1, in = -1;
  };
  Ports device_ports(DeviceId device) const { return device_ports_[device.index()]; }
  /// Returns the capacity between the devices of a node (-1: none), and the latency there.
  std::int32_t local_whole(NodeId node) const { return local_whole_[node.index()]; }
  Seconds local_latency(NodeId node) const { return local_latency_[node.index()]; }
  /// Returns a class per node. Nodes of one class have identical connections to each other and to
  /// other nodes: exchanging them leaves the network between nodes unchanged.
  const std::vector<int>& likeness() const { return likeness_; }

 private:
  struct Switch {
    std::vector<NodeId> nodes;  // ordered
    std::vector<Ports> ports;   // by node; the same for both ends of a pair
    Seconds latency;
    std::int32_t whole = -1;  // its capacity
  };
  /// Returns the switch of two nodes; null if there is none.
  const Switch* switch_of(NodeId from, NodeId to) const;
  static const Ports& ports(const Switch& by, NodeId node);
  template <typename Out, typename Between, typename In>
  Seconds cross(NodeId from, NodeId to, const Out& out, const Between& between, const In& in) const;
  /// Returns the link for a switch's own capacity; -1 if it has none.
  std::int32_t add_capacity(std::string name, const cluster::Link& link);
  std::int32_t add_link(std::string name, BytesPerSecond capacity);
  void add_switch(const cluster::Cluster& cluster, const cluster::Link& link);
  void add_local(const cluster::Cluster& cluster, NodeId node);
  void add_device_ports(const cluster::Cluster& cluster, DeviceId device, BytesPerSecond capacity);
  void find_likeness();

  std::vector<NetworkLink> links_;
  std::vector<NodeId> nodes_;            // by device
  std::vector<Switch> switches_;         // in order of preference
  std::vector<std::int32_t> switch_of_;  // [node * nodes + node]; -1: none
  std::vector<Ports> device_ports_, node_ports_;
  std::vector<std::int32_t> local_whole_;  // by node: the capacity inside
  std::vector<Seconds> local_latency_;     // by node
  std::vector<int> likeness_;              // by node
};

}  // namespace motley::cost
