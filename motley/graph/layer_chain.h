#pragma once

#include <cstddef>
#include <limits>
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

inline constexpr std::size_t kNoLayer = std::numeric_limits<std::size_t>::max();
/// Puts backward operators, by those of the forward pass in `of_op`: where the operator is whose
/// gradient it is, by autograd's numbers, or else its module's forward pass, and not behind the
/// gradients that it reads. `modules`: by operator the layer of its module, or kNoLayer.
void place_backward(const Graph& graph, const std::vector<std::size_t>& modules,
                    std::vector<std::size_t>& of_op);

}  // namespace motley::graph
