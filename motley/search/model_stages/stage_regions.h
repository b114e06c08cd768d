#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "motley/plan/plan.h"
#include "motley/search/model_stages/model_pieces.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Stages of a model as regions of a plan.
class StageRegions {
 public:
  /// Both must outlive it.
  StageRegions(const UnitPrograms& programs, const ModelPieces& pieces)
      : programs_(programs), pieces_(pieces) {}

  /// `again`: how much is recomputed, by the stage's layers (FinerLayers::parts).
  plan::Region region(const PlannedStage& stage, const std::vector<Recompute>& again) const;
  /// How fast the stage's devices are: what its operators take on some device
  /// (plan/pass_order.h), over what they take there, which `work` says by piece.
  double speed(const PlannedStage& stage, std::int64_t micro_batch,
               const std::vector<LayerWork>& work) const;

 private:
  const UnitPrograms& programs_;
  const ModelPieces& pieces_;
  mutable std::map<std::int64_t, std::vector<double>> seconds_;  // by micro-batch, then piece
};

}  // namespace motley::search
