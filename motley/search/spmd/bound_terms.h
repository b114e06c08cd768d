#pragma once

#include <cstddef>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/space.h"

namespace motley::search {

/// Lower bounds of a step (bound.h), each a sum over operators, values and parameters, as bits.
enum Bounds : unsigned {
  kBusy = 1,     ///< all compute, and the waists of the forward pass
  kPath = 2,     ///< a path of dependent work, and the waists of both passes
  kLane = 4,     ///< all exchanges
  kAfter = 8,    ///< the forward pass with its waists, and exchanges that depend on its end
  kBefore = 16,  ///< exchanges that the end of the forward pass waits for, and compute after it
  kWork = 32,    ///< all compute, and all copies of changes of form
  kChain = 64,   ///< the chain alone, with all its values as waists
  kLate = 128,   ///< as kAfter, for half of the remaining chain
  kEnd = 256,    ///< as kAfter, for the end of the chain
};
inline constexpr std::size_t kBounds = 9;

/// Which bounds each part of a step counts in.
struct BoundTerms {
  /// A change of form that counts by itself, with the form of its reader that waits least. A waist
  /// is a value that all counted operators come before or wait for, so none of them runs during its
  /// exchange.
  struct Change {
    ValueId value;
    std::vector<std::size_t> readers;  ///< indices in the space's readers of the value
    unsigned bounds = 0;
  };
  std::vector<unsigned> compute;  ///< by operator: its compute
  std::vector<unsigned> inner;    ///< by operator: its inner exchanges
  std::vector<unsigned> lanes;    ///< by value: exchanges of its changes of form
  std::vector<unsigned> copies;   ///< by value: copies of these changes
  std::vector<Change> changes;
};

/// Follows the longest chain of operators by seconds. An operator counts beside a value of the
/// chain if it comes before or after it. If many branches of a layer do not, the value is no waist;
/// if few do not (1 % of the seconds in total), these do not count.
BoundTerms find_bound_terms(const graph::Graph& graph, const SpmdSpace& space,
                            const std::vector<double>& seconds);

}  // namespace motley::search
