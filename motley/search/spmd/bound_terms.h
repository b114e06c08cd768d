#pragma once

#include <cstddef>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/search/spmd/space.h"

namespace motley::search {

/// Bounds of a step that are sums over operators, values and parameters (bound.h), as bits.
enum Bounds : unsigned {
  kBusy = 1,     ///< all compute, and the waists of forward
  kPath = 2,     ///< what waits for each other, and the waists of forward and backward
  kLane = 4,     ///< all exchanges
  kAfter = 8,    ///< forward with its waists, and the exchanges of what depends on its end
  kBefore = 16,  ///< exchanges that the end of forward waits for, and compute that waits for it
  kWork = 32,    ///< all compute, and all copies that changes of form make
  kChain = 64,   ///< the chain alone, and all of its values as waists
  kLate = 128,   ///< as kAfter, of half of what is left of the chain then
  kEnd = 256,    ///< as kAfter, of the end of the chain
};
inline constexpr std::size_t kBounds = 9;

/// What counts in which of the bounds.
struct BoundTerms {
  /// A change of form that counts for itself, as the reader of these has it that waits least. A
  /// waist is one that all operators that count come before or wait for: nothing that counts is
  /// done meanwhile.
  struct Change {
    ValueId value;
    std::vector<std::size_t> readers;  ///< positions in the space's readers of the value
    unsigned bounds = 0;
  };
  std::vector<unsigned> compute;  ///< by operator: its compute
  std::vector<unsigned> inner;    ///< by operator: exchanges within it
  std::vector<unsigned> lanes;    ///< by value: exchanges of its changes of form
  std::vector<unsigned> copies;   ///< by value: copies of these
  std::vector<Change> changes;
};

/// Follows the chain of operators that is longest by seconds. An operator counts beside a value of
/// the chain if it comes before or after it; where the many branches of a layer would not, the
/// value is no waist, and where few do not (1 % of the seconds in all), they do not count.
BoundTerms find_bound_terms(const graph::Graph& graph, const SpmdSpace& space,
                            const std::vector<double>& seconds);

}  // namespace motley::search
