#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/graph/graph.h"

namespace motley::cost {

/// Operators of a layer's forward and backward pass (docs/formats/graph.md). They have a time and
/// bytes and nothing that could be run.
inline constexpr std::string_view kLayer = "motley::layer";
inline constexpr std::string_view kLayerBackward = "motley::layer_backward";

/// Is it a graph of such layers, that can be planned and simulated but not run?
bool is_layer_graph(const graph::Graph& graph);

/// A layer profile as a training step: one operator a layer forward and one backward, the loss, and
/// the profile's bytes. What a member of a tensor-parallel group of t holds is taken to be r + s /
/// t bytes, from the least and the largest degree that were profiled: s is in `layer_rows` rows, of
/// which each member has its part, r is whole on each. So it is of
///   parameters   "layers.N.split" [rows, s] and "layers.N.whole" [r], all f32;
///   activations  kept from forward to backward, [batch, rows, s] and [batch, r];
///   buffers      "layers.N.rest": state beyond weights, gradients and the optimizer's moments.
/// What a layer gives to the next is a view, so that a layer done again reads what was kept of the
/// one before. Operators: layer i is 2 i, its view 2 i + 1 (none of the last), loss and its
/// gradient 2 L - 1 and 2 L, backward passes from the last layer on behind, then sums of shared
/// gradients. Of two layers that share weights the second's are in both, and the first has what it
/// has more.
struct LayerGraph {
  graph::Graph graph;
  std::int64_t rows = 1;  ///< a multiple of all degrees
  /// Bytes of a member of any degree, by which the profile differs most from r + s / t: of its own.
  double misfit = 0;
};
/// A layer whose output is not known gives one number. Usage error (cost.layers) for a profile
/// without sizes, or with unequal numbers of layers.
Result<LayerGraph> make_layer_graph(const LayerProfile& profile);

/// Layer of "layers.N.split" and the like; none: of another name.
std::optional<std::size_t> layer_of_parameter(std::string_view name);

}  // namespace motley::cost
