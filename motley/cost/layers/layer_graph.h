#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/graph/graph.h"

namespace motley::cost {

/// Operators of a layer's two passes (docs/formats/graph.md): time and bytes, nothing to run.
inline constexpr std::string_view kLayer = "motley::layer";
inline constexpr std::string_view kLayerBackward = "motley::layer_backward";

/// Returns whether the graph consists of such layers: it can be planned and simulated but not run.
bool is_layer_graph(const graph::Graph& graph);

/// A layer profile as a training step: one forward and one backward operator per layer, the loss,
/// and the profile's bytes. A member of a tensor-parallel group of t is assumed to hold r + s / t
/// bytes, derived from the smallest and the largest profiled degree: s is in `layer_rows` rows,
/// split over the members; r is whole on each member. This applies to
///   parameters   "layers.N.split" [rows, s] and "layers.N.whole" [r], all f32;
///   activations  kept from forward to backward, [batch, rows, s] and [batch, r];
///   buffers      "layers.N.rest": state beyond weights, gradients and the optimizer's moments.
/// A layer's output is a view, so that a recomputed layer reads what was kept of the one before.
/// Operators: layer i is 2 i, its view 2 i + 1 (none for the last), the loss and its gradient 2 L -
/// 1 and 2 L, then the backward passes from the last layer on, then sums of shared gradients. If
/// two layers share weights, both have the second's, and the first has the rest of its own.
struct LayerGraph {
  graph::Graph graph;
  std::int64_t rows = 1;  ///< a multiple of all degrees
  /// Largest relative error of r + s / t against the profile's bytes, over all degrees.
  double misfit = 0;
};
/// Makes the graph. A layer with unknown output gives one number. Usage error (cost.layers) for a
/// profile without sizes, or with unequal numbers of layers.
Result<LayerGraph> make_layer_graph(const LayerProfile& profile);

/// Returns the layer of "layers.N.split" and similar names; none for other names.
std::optional<std::size_t> layer_of_parameter(std::string_view name);

}  // namespace motley::cost
