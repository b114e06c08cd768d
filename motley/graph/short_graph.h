#pragma once

#include <cstddef>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"

namespace motley::graph {

/// A graph without most of its repeated layers, for what is the same in each of them: of the
/// longest run of layers of a chain that are identical (equal operators and shapes, between the
/// same places of their own layer, of the ones beside it or of what all of them read) a few are
/// kept, the first ones and the last. The one before the gap stands for those that were left out.
struct ShortGraph {
  Graph graph;
  std::vector<OpId> of_op;            ///< by operator of the whole graph: what stands for it
  std::vector<ValueId> of_value;      ///< the same of values; none: nothing does (extra outputs)
  std::vector<std::size_t> of_layer;  ///< by layer of the whole graph: which of its layers does
  std::vector<OpId> whole_op;         ///< by operator of `graph`: itself in the whole graph
  std::vector<double> op_count;       ///< by operator of `graph`: for how many it stands
  std::vector<double> value_count;    ///< by value of `graph`: for how many it stands
  std::size_t left_out = 0;           ///< layers; 0: it is the whole graph
};

/// Keeps `kept` >= 2 layers of the run, where it has more. O(graph).
ShortGraph shorten(const Graph& graph, const LayerChain& chain, std::size_t kept);

}  // namespace motley::graph
