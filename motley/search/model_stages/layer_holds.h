#pragma once

#include <cstddef>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"
#include "motley/program/program.h"

namespace motley::search {

/// To which layer of a chain an instruction belongs: that of its operator or, of what was added for
/// one, of the operator before. `is_once`: a step has it once, however many micro-batches.
struct LayerPlace {
  std::size_t layer = 0;
  bool is_forward = true;
  bool is_once = false;
  OpId op = {};  ///< the operator; none: before all of them
};
/// By instruction of a program of one micro-batch in which nothing is done again; `once`: by
/// operator, whether a step has it once.
std::vector<LayerPlace> find_layer_places(const program::DeviceProgram& program,
                                          const graph::Graph& graph, const graph::LayerChain& chain,
                                          const std::vector<char>& once);
/// Would it be done again in its layer's backward pass, with these operators (recompute_choice.h)?
bool is_again(const LayerPlace& place, const std::vector<char>& done_again);

/// What each layer makes a device hold, in bytes.
struct LayerHolds {
  std::vector<double> fixed;  ///< parameters, their states, gradients and gathered copies
  std::vector<double> kept;   ///< made in a forward pass and read in this layer's backward pass
  /// Of all else, the most that there is while one of the layer's instructions runs.
  std::vector<double> workspace;
};
/// What is made by something that is done again is not kept: it is there while its layer's backward
/// pass runs. `scratch`: by instruction. `groups`: by layer, rising: layers of one group are pieces
/// of one layer. A value that the backward passes of two groups read counts in both, in the last of
/// each that reads it: each may be on a device of its own, pieces of one group are seldom. What is
/// done again is done again for all of a group.
LayerHolds find_layer_holds(const program::DeviceProgram& program,
                            const std::vector<LayerPlace>& places,
                            const std::vector<char>& done_again,
                            const std::vector<std::size_t>& groups,
                            const std::vector<Bytes>& scratch);

}  // namespace motley::search
