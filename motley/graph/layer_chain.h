#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "motley/graph/graph.h"

namespace motley::graph {

/// The step as a chain of layers (find_layers) that can be cut into stages between any two: the
/// forward pass reads only from its own and earlier layers, gradients come from their own and later
/// ones. If modules are used out of order, an operator is in the first layer for which this holds.
struct LayerChain {
  std::vector<std::string> names;  ///< by layer
  std::vector<std::size_t> of_op;  ///< by operator: its layer
};
LayerChain find_layer_chain(const Graph& graph);

inline constexpr std::size_t kNoLayer = std::numeric_limits<std::size_t>::max();
/// Places backward operators by the forward ones in `of_op`: in the layer of the operator whose
/// gradient it is (by autograd's numbers), else of its module's forward pass, but not after the
/// gradients that it reads. `modules`: by operator the layer of its module, or kNoLayer.
void place_backward(const Graph& graph, const std::vector<std::size_t>& modules,
                    std::vector<std::size_t>& of_op);

}  // namespace motley::graph
