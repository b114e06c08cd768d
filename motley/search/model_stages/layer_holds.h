#pragma once

#include <cstddef>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"
#include "motley/program/program.h"

namespace motley::search {

/// The layer of an instruction: its operator's or, for an added instruction, that of the operator
/// before. `is_once`: a step runs it once, for any number of micro-batches.
struct LayerPlace {
  std::size_t layer = 0;
  bool is_forward = true;
  bool is_once = false;
  OpId op = {};  ///< the operator; none: before all operators
};
/// Finds the layer of each instruction of a program of one micro-batch without recomputation.
/// `once`: by operator, whether a step runs it once.
std::vector<LayerPlace> find_layer_places(const program::DeviceProgram& program,
                                          const graph::Graph& graph, const graph::LayerChain& chain,
                                          const std::vector<char>& once);
/// Is it among these operators, recomputed in the layer's backward pass (recompute_choice.h)?
bool is_again(const LayerPlace& place, const std::vector<char>& done_again);

/// The bytes that each layer needs on a device.
struct LayerHolds {
  std::vector<double> fixed;  ///< parameters, their states, gradients and gathered copies
  std::vector<double> kept;   ///< made in a forward pass and read in this layer's backward pass
  /// Peak of all other bytes while an instruction of the layer runs.
  std::vector<double> workspace;
};
/// Finds the bytes of each layer. Results of recomputed operators are not kept: they exist during
/// their layer's backward pass. `scratch`: by instruction. `groups`: by layer, non-decreasing;
/// layers of one group are pieces of one layer. A value read by the backward passes of two groups
/// counts in both, in the last reader of each group: groups may be on different devices, pieces of
/// a group rarely are. Recomputation is for a whole group.
LayerHolds find_layer_holds(const program::DeviceProgram& program,
                            const std::vector<LayerPlace>& places,
                            const std::vector<char>& done_again,
                            const std::vector<std::size_t>& groups,
                            const std::vector<Bytes>& scratch);

}  // namespace motley::search
