#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

struct CutMoves {
  std::vector<int> steps = {1};   ///< by how many layers a cut moves at once, in this order
  std::size_t together = 1;       ///< cuts side by side that move at once, at most
  double smallest = 1e-4;         ///< gain, as a part of the step
  std::int64_t passes = 400'000;  ///< of micro-batches through stages, simulated at most
};

/// Moves cuts between stages as long as that is quicker by the simulator and fits; those of
/// replicas that are cut alike move together. Deterministic. Returns how many plans were simulated.
std::int64_t move_cuts(const StageEvaluator& evaluator, const CutMoves& moves,
                       PricedStagePlan& priced);

}  // namespace motley::search
