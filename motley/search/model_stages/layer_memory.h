#pragma once

#include <map>
#include <utility>
#include <vector>

#include "motley/search/model_stages/model_pieces.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// What pieces of a model hold on units (layer_holds.h), by the programs of the two smallest
/// micro-batches that are simulated and the line through them. Of a mixed unit the largest parts of
/// its devices' memories, times the smallest memory.
class LayerMemory {
 public:
  /// Both must outlive it.
  LayerMemory(const UnitPrograms& programs, const ModelPieces& pieces)
      : programs_(programs), pieces_(pieces) {}

  /// By piece, if so much is recomputed.
  const std::vector<LayerBytes>& bytes(std::size_t unit, Recompute how) const;
  /// The same with half of the optimizer's states, as of two replicas that share them.
  std::vector<LayerBytes> bytes_sharing(std::size_t unit, Recompute how) const;

 private:
  std::vector<LayerBytes> find(std::size_t unit, Recompute how) const;

  const UnitPrograms& programs_;
  const ModelPieces& pieces_;
  mutable std::map<std::pair<std::size_t, Recompute>, std::vector<LayerBytes>> bytes_;
};

}  // namespace motley::search
