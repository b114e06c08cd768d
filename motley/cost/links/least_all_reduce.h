#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "motley/base/ids.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/links/network.h"

namespace motley::cost {

/// A lower bound of any all-reduce among k of some devices, wherever they are, for bounds over
/// groups that are too many to list. Groups with a route of their own may be far above it.
///
/// For k ranks on m nodes, with messages of a seconds inside nodes and a' between them, b the best
/// rate between two nodes and p_j the j-th best of the devices' ports inside nodes:
/// - a ring has 2 (k-1) messages one after the other and k - m hops inside nodes, so it moves its 2
///   (k-1)/k B no faster than min(b, p_(k-m));
/// - two trees: a node d levels below a root with a chain of c ranks waits for d messages between
///   nodes and c - 1 inside. k ranks fit on m nodes within a time that allows long enough chains,
///   with the fullest nodes nearest to the roots. Some node's links carry (m = 2, 3, more) 1, 3/2,
///   2 times B; the port of a rank inside a chain carries 2 B, and there are k - 2m or more such
///   ranks.
/// The minimum over all m counts. Exact if all is identical and nodes are full.
class LeastAllReduce {
 public:
  /// Uses the backend's fastest algorithm. `network` must outlive it. O(devices log devices +
  /// different nodes squared).
  LeastAllReduce(const Network& network, const std::vector<DeviceId>& devices,
                 const Transport& transport, Backend backend);

  /// B bytes take at least the minimum of these lines. O(nodes), after O(nodes^2 * devices of a
  /// node) once. Caches results, so one object serves one thread.
  struct Line {
    double latency = 0, seconds_per_byte = 0;
  };
  std::vector<Line> lines(std::size_t ranks) const;

 private:
  double port(std::size_t j) const;  ///< seconds per byte of the j-th best port, from 1; 0: no port
  Line ring(std::size_t ranks, std::size_t nodes) const;
  Line trees(std::size_t ranks, std::size_t nodes) const;
  /// Seconds from the deepest rank to a root, and the most ranks that reach it; ascending.
  using Reach = std::vector<std::pair<double, std::size_t>>;
  const Reach& reach(std::size_t nodes) const;

  Backend backend_;
  std::vector<std::size_t> on_node_;  // numbers of devices, fullest first
  std::vector<std::size_t> counts_;   // devices on the fullest 0, 1, 2, ... nodes
  std::vector<double> ports_;         // seconds per byte, ascending
  double inside_ = 0, between_ = 0;   // seconds per message
  double way_ = 0;                    // seconds per byte between nodes
  mutable std::vector<Reach> reach_;  // by nodes; empty: not computed
};

}  // namespace motley::cost
