#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "motley/graph/layer_chain.h"
#include "motley/graph/short_graph.h"
#include "motley/plan/planner.h"
#include "motley/search/model_stages/recompute_choice.h"
#include "motley/search/spmd/depths.h"

namespace motley::search {

/// A model's graph as a chain of layers, of which a few stand for identical ones.
class LayeredGraph {
 public:
  /// The graph must outlive it. O(graph).
  LayeredGraph(const graph::Graph& whole, const plan::Problem& problem);

  const graph::Graph& whole() const { return whole_; }
  const graph::LayerChain& chain() const { return chain_; }
  /// Null: layers are few or differ.
  const std::shared_ptr<const Depths>& depths() const { return depths_; }
  /// Stands for the whole graph.
  const graph::ShortGraph& shown() const { return depths_ ? depths_->searched : all_; }

  /// find_once of the graph at the smallest micro-batch.
  const std::vector<char>& once(GatheredParameters gathered) const;
  /// find_done_again of the graph.
  const std::vector<char>& done_again(Recompute how) const {
    return done_again_[static_cast<std::size_t>(how)];
  }

 private:
  const graph::Graph& whole_;
  std::int64_t least_batch_;
  plan::BatchNormSpan batch_norm_;
  graph::LayerChain chain_;
  std::shared_ptr<const Depths> depths_;
  graph::ShortGraph all_;  // only without depths
  mutable std::map<GatheredParameters, std::vector<char>> once_;
  std::array<std::vector<char>, kRecomputes.size()> done_again_;
};

/// The parameters that layers read.
struct LayerParameters {
  std::vector<double> bytes;  ///< by layer: of those that no layer before it reads
  /// The first and the last layer that read one parameter.
  std::optional<std::pair<std::size_t, std::size_t>> tied;
};
LayerParameters find_layer_parameters(const graph::Graph& graph, const graph::LayerChain& chain);

/// By layer, bytes of a sample that later layers read of what it or those before it make in the
/// forward pass. `samples`: a micro-batch.
std::vector<Bytes> find_layer_outputs(const graph::Graph& graph, const graph::LayerChain& chain,
                                      std::int64_t samples);

}  // namespace motley::search
