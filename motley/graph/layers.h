#pragma once

#include <string>
#include <vector>

#include "motley/graph/graph.h"

namespace motley::graph {

/// The operators (forward and backward) of one module path prefix such as "h.3".
struct Layer {
  std::string path;                 ///< "h.3"; "" for operators without a layer
  std::vector<OpId> ops;            ///< in graph order
  std::vector<ValueId> parameters;  ///< parameters first used here
};

/// Splits the graph by module path. A numeric component under a parent with at least two such
/// children makes each child a layer; other operators are grouped by their first component.
/// Deterministic; each operator is in exactly one layer.
std::vector<Layer> find_layers(const Graph& graph);

}  // namespace motley::graph
