#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/units.h"
#include "motley/cost/links/network.h"
#include "motley/cost/links/transfer.h"

namespace motley::cost {

struct Transport;

/// Messages of equal size between pairs of devices, all at once. Nodes that are identical may be
/// exchanged, and so may devices of a node that have ports of one rate: messages that this turns
/// into each other go at one rate while nothing else is under way, and are one flow that crosses
/// the links of all. So there are as many flows as pairs of unlike nodes and devices, and building
/// them takes O(devices * unlike nodes).
class EvenPairs {
 public:
  /// What it refers to must outlive it.
  EvenPairs(const Network& network, const Transport& transport,
            const std::vector<DeviceId>& devices, double bytes);

  /// Between the devices of each node.
  void add_inside();
  /// Between those of different nodes: of each two nodes all pairs; or each device and the one at
  /// its place, where all nodes have as many.
  enum class Which { kAll, kSamePlace };
  void add_across(Which which);

  /// The phase of all that was added, in so many messages of a device one after the other.
  TransferPhase take(std::size_t rounds) &&;

 private:
  using Node = std::vector<DeviceId>;       // its devices that take part
  using Rates = std::pair<double, double>;  // of a device's port, out and in; -1: no limit
  using Count = std::pair<const Rates, int>;

  double rate_of(std::int32_t link) const;
  Rates rates_of(DeviceId device) const;
  std::map<Rates, int> count_rates(const Node& node) const;
  std::vector<double> mark_of(const Node& node) const;
  NodeId id_of(const Node& node) const { return network_.node(node.front()); }
  void add_inside(const std::vector<Node>& nodes, const Count& from, const Count& to);
  void add_across(const std::vector<Node>& from, const std::vector<Node>& to, Which which);
  void use(std::int32_t link, double weight);
  void end_flow(Seconds latency);

  const Network& network_;
  const Transport& transport_;
  const double bytes_;
  std::vector<std::vector<Node>> classes_;  // of nodes that may be exchanged
  Flow flow_;
  TransferPhase phase_;
  Seconds slowest_;
};

}  // namespace motley::cost
