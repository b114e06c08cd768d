#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/units.h"
#include "motley/cluster/cluster.h"

namespace motley::cost {

/// What transfers share: one direction of a pair link, of a node's way to a switch, of its network
/// card, of a device's port inside its node; or a switch as a whole.
struct NetworkLink {
  std::string name;  ///< for people: "a>b", "a>all", "all>a", "a:0>a", "a out", "a in", "all"
  BytesPerSecond capacity;
  bool operator==(const NetworkLink&) const = default;
};

/// What a message from one device to another crosses, each link once, in order.
struct Path {
  std::vector<std::int32_t> links;
  Seconds latency;
  bool operator==(const Path&) const = default;
};

/// The links of a cluster, numbered, and the way of each pair of devices.
///
/// - A link that joins two nodes is two, one a direction, each of its bandwidth.
/// - One that joins more is a switch that can serve all at once: two for each node, out and in.
/// - A link with a capacity of its own, and a node with a bandwidth of its own (out and in), are
/// one
///   more link for all that crosses them.
/// - A link that names one node alone is a switch among that node's devices. Where a node has none
/// but
///   devices of known kinds, these have ports as fast as what joins them: the peer link (NVLink,
///   Infinity Fabric) if all are of one kind and it has one, else the host link; in the table of
///   kinds both are rates before protocol overhead. Devices without either are not limited.
///
/// Pairs on different nodes take the link that Cluster says; where none joins them, nothing limits
/// them. A node's devices share its NICs; what lies between a device and the NIC is not modelled.
///
/// Example: nodes a, b, c on one switch of 1 GB/s, links 0 "a>all", 1 "all>a", 2 "b>all", ...: from
/// a to c 0 and 5; from b to c 2 and 5. Both at once get 0.5 GB/s, as they share 5.
class Network {
 public:
  /// O(pairs of nodes + sum of the links' sizes squared).
  explicit Network(const cluster::Cluster& cluster);

  const std::vector<NetworkLink>& links() const { return links_; }
  /// Of each link in bytes/s, as FlowNetwork wants them.
  std::vector<double> capacities() const;
  /// Empty for a device and itself. O(log nodes).
  Path path(DeviceId from, DeviceId to) const;
  /// The same: adds its links to some, and says how long a message takes.
  Seconds add_path(DeviceId from, DeviceId to, std::vector<std::int32_t>& links) const;
  Seconds latency(DeviceId from, DeviceId to) const;
  NodeId node(DeviceId device) const { return nodes_[device.index()]; }
  /// The way from one node to another: links of the first alone, of both, of the second alone.
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
  /// What lies between the devices of a node, -1: nothing; and how long a message takes there.
  std::int32_t local_whole(NodeId node) const { return local_whole_[node.index()]; }
  Seconds local_latency(NodeId node) const { return local_latency_[node.index()]; }
  /// Nodes of equal numbers are identical in all that joins them to other nodes and to each other:
  /// exchanged, they leave the network between nodes as it is.
  const std::vector<int>& likeness() const { return likeness_; }

 private:
  struct Switch {
    std::vector<NodeId> nodes;  // ordered
    std::vector<Ports> ports;   // of each node; the same for both ends of a pair
    Seconds latency;
    std::int32_t whole = -1;  // its capacity
  };
  /// That of two nodes; null: none.
  const Switch* switch_of(NodeId from, NodeId to) const;
  static const Ports& ports(const Switch& by, NodeId node);
  template <typename Out, typename Between, typename In>
  Seconds cross(NodeId from, NodeId to, const Out& out, const Between& between, const In& in) const;
  /// What lies between the ports of a switch; -1: nothing.
  std::int32_t add_capacity(std::string name, const cluster::Link& link);
  std::int32_t add_link(std::string name, BytesPerSecond capacity);
  void add_switch(const cluster::Cluster& cluster, const cluster::Link& link);
  void add_local(const cluster::Cluster& cluster, NodeId node);
  void add_device_ports(const cluster::Cluster& cluster, DeviceId device, BytesPerSecond capacity);
  void find_likeness();

  std::vector<NetworkLink> links_;
  std::vector<NodeId> nodes_;            // of each device
  std::vector<Switch> switches_;         // in order of preference
  std::vector<std::int32_t> switch_of_;  // [node * nodes + node]; -1: none
  std::vector<Ports> device_ports_, node_ports_;
  std::vector<std::int32_t> local_whole_;  // of each node: the capacity inside
  std::vector<Seconds> local_latency_;     // of each node
  std::vector<int> likeness_;              // of each node
};

}  // namespace motley::cost
