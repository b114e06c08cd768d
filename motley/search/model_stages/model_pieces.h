#pragma once

#include <vector>

#include "motley/search/model_stages/finer_layers.h"
#include "motley/search/model_stages/layered_graph.h"
#include "motley/search/model_stages/unit_programs.h"

namespace motley::search {

/// The pieces of a model's layers, which are the layers that plans of its stages are cut between.
struct ModelPieces {
  FinerLayers cut;
  LayerParameters parameters;       ///< by piece
  std::vector<Bytes> outputs;       ///< by piece: of a sample
  std::vector<std::size_t> groups;  ///< by piece: its layer
  std::size_t size() const { return groups.size(); }
};

/// Cuts layers by what operators take one after the other on the first device that has times.
ModelPieces find_model_pieces(const UnitPrograms& programs);

}  // namespace motley::search
