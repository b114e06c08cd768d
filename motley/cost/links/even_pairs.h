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

/// Messages of equal size between pairs of devices, all at once. Identical nodes are
/// interchangeable, as are devices of a node with ports of one rate. Messages that exchanges map to
/// each other have one rate while alone, so they are one flow over the links of all. There are as
/// many flows as pairs of different nodes and devices; building takes O(devices * different nodes).
class EvenPairs {
 public:
  /// All arguments must outlive it.
  EvenPairs(const Network& network, const Transport& transport,
            const std::vector<DeviceId>& devices, double bytes);

  void add_inside();
  /// Adds messages between nodes: all pairs, or devices at equal positions of nodes of equal size.
  enum class Which { kAll, kSamePlace };
  void add_across(Which which);

  /// Returns the phase of everything added, with `rounds` messages of a device one after the other.
  TransferPhase take(std::size_t rounds) &&;

 private:
  using Node = std::vector<DeviceId>;       // its participating devices
  using Rates = std::pair<double, double>;  // out and in of a device's port; -1: no limit
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
  std::vector<std::vector<Node>> classes_;  // of interchangeable nodes
  Flow flow_;
  TransferPhase phase_;
  Seconds slowest_;
};

}  // namespace motley::cost
