#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/layer_chain.h"
#include "motley/graph/short_graph.h"

namespace motley::search {

/// A chain whose layers are cut into pieces: consecutive operators of their forward passes, with
/// what is made of parameters alone where it is read first, and their parts of the backward pass.
/// A chain of pieces is a chain of layers: forward they read from before, backward from behind.
struct FinerLayers {
  graph::LayerChain pieces;        ///< its names: of the layer that each is a piece of
  std::vector<std::size_t> first;  ///< by layer, and one more: the first of its pieces
  std::vector<std::size_t> stand;  ///< by piece: the one of `shown` that stands for it
  /// By piece: the last operator of its forward pass, by its name and its module in the layer:
  /// "aten::relu of mlp.act".
  std::vector<std::string> last;

  /// "h.3", or "h.3 (after aten::relu of mlp.act)" where the piece is not its layer's first one.
  std::string name_first(std::size_t piece) const;
  /// "h.3", or "h.3 (through aten::relu of mlp.act)" where it is not its layer's last one.
  std::string name_last(std::size_t piece) const;
  /// Of the pieces [from, to) each layer's, whole or in part: its first, and one behind its last.
  std::vector<std::pair<std::size_t, std::size_t>> parts(std::size_t from, std::size_t to) const;
};

struct FinerQuestion {
  const graph::Graph& graph;
  const graph::LayerChain& layers;
  const graph::ShortGraph&
      shown;  ///< identical layers are cut alike; all that is said of others counts
  std::vector<double> seconds;  ///< by operator of the graph, of those in `shown`
  double piece = 0;             ///< about as many seconds has each, where operators allow; > 0
  std::int64_t samples = 1;     ///< for which values are counted
};

/// Cuts each layer that takes more than a piece into ceil(seconds / piece) of them, each cut where
/// fewest bytes of a sample pass within half a piece of its even place. Not where a parameter or a
/// buffer is read on both sides. O(graph).
FinerLayers find_finer_layers(const FinerQuestion& question);

}  // namespace motley::search
