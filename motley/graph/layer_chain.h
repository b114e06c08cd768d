#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "motley/graph/graph.h"

namespace motley::graph {

/// The step as a chain of layers (find_layers), so that it can be cut into stages anywhere between
/// two of them: what the forward pass reads comes from its own layer or those before, gradients
/// from its own or those behind. Where modules are used out of their order an operator is in the
/// first layer in which that holds.
struct LayerChain {
  std::vector<std::string> names;  ///< by layer
  std::vector<std::size_t> of_op;  ///< by operator: its layer
};
LayerChain find_layer_chain(const Graph& graph);

}  // namespace motley::graph
