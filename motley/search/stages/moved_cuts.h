#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/stages/stage_evaluator.h"

namespace motley::search {

struct CutMoves {
  std::vector<int> steps = {1};   ///< layers that a cut moves at once, in this order
  std::size_t together = 1;       ///< most adjacent cuts that move at once
  double smallest = 1e-4;         ///< gain, relative to the step
  std::int64_t passes = 400'000;  ///< most simulated passes of micro-batches through stages
};

/// Moves cuts between stages while that is faster in the simulator and fits; replicas with
/// identical cuts move together. Deterministic. Returns the number of simulated plans.
std::int64_t move_cuts(const StageEvaluator& evaluator, const CutMoves& moves,
                       PricedStagePlan& priced);

}  // namespace motley::search
