#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "motley/base/ids.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/links/network.h"

namespace motley::cost {

/// What no all-reduce among k of some devices takes less than, whichever they are and however they
/// lie on their nodes: for bounds over groups that nobody can list. Groups that have a route of
/// their own may be far above it.
///
/// Of k ranks on m nodes, with messages of a seconds inside nodes and a' between them, b the best
/// rate between two nodes and p_j the j-th best of the devices' ports inside nodes:
/// - a ring has 2 (k-1) messages one after the other, k - m of its hops are inside nodes, so it
///   moves its 2 (k-1)/k B no faster than min(b, p_(k-m));
/// - two trees: a node that is d below a root and has a chain of c ranks waits for d messages
///   between nodes and c - 1 inside; k ranks are on m nodes in a time in which chains may be long
///   enough to hold them, the fullest nodes nearest to the roots. Some node's ways carry (m = 2, 3,
///   more) 1, 3/2, 2 times B, the port of a rank amid a chain, of which there are k - 2m or more,
///   2 B.
/// Over all m the least counts. Exact where all is identical and nodes are full.
class LeastAllReduce {
 public:
  /// By which of the backend's algorithms is fastest; `network` must outlive it. O(devices log
  /// devices + unlike nodes squared).
  LeastAllReduce(const Network& network, const std::vector<DeviceId>& devices,
                 const Transport& transport, Backend backend);

  /// Seconds of B bytes are at least the least of these lines. O(nodes), after O(nodes^2 * devices
  /// of a node) once. Remembers what it found, so one object serves one thread.
  struct Line {
    double latency = 0, seconds_per_byte = 0;
  };
  std::vector<Line> lines(std::size_t ranks) const;

 private:
  double port(std::size_t j) const;  ///< seconds a byte of the j-th best, from 1; 0: of none
  Line ring(std::size_t ranks, std::size_t nodes) const;
  Line trees(std::size_t ranks, std::size_t nodes) const;
  /// Seconds from the deepest rank to a root, and the most ranks that reach it in them; ascending.
  using Reach = std::vector<std::pair<double, std::size_t>>;
  const Reach& reach(std::size_t nodes) const;

  Backend backend_;
  std::vector<std::size_t> on_node_;  // devices, of the fullest first
  std::vector<std::size_t> counts_;   // of them on the fullest 0, 1, 2, ... nodes
  std::vector<double> ports_;         // seconds a byte, ascending
  double inside_ = 0, between_ = 0;   // seconds of a message
  double way_ = 0;                    // seconds a byte between nodes
  mutable std::vector<Reach> reach_;  // by nodes; empty: not asked for
};

}  // namespace motley::cost
