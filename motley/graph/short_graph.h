#pragma once

#include <cstddef>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"

namespace motley::graph {

/// A graph without most of its repeated layers, for results that are equal in each. Of the longest
/// run of identical layers (equal operators and shapes, between the same positions of their own
/// layer, an adjacent one or values that all of them read) only the first few and the last are
/// kept. The layer before the gap represents those left out.
struct ShortGraph {
  Graph graph;
  std::vector<OpId> of_op;            ///< by operator of the whole graph: its representative
  std::vector<ValueId> of_value;      ///< the same for values; none for some extra outputs
  std::vector<std::size_t> of_layer;  ///< by layer of the whole graph: its representative
  std::vector<OpId> whole_op;         ///< by operator of `graph`: itself in the whole graph
  std::vector<double> op_count;       ///< by operator of `graph`: how many it represents
  std::vector<double> value_count;    ///< by value of `graph`: how many it represents
  std::size_t left_out = 0;           ///< layers; 0: this is the whole graph
};

/// Keeps `kept` >= 2 layers of a longer run. O(graph).
ShortGraph shorten(const Graph& graph, const LayerChain& chain, std::size_t kept);

}  // namespace motley::graph
