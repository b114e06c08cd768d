#pragma once

#include <vector>

#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// A plan with one change, and the changed replicas. It has no places.
struct MovedPlan {
  StagePlan plan;
  std::vector<std::size_t> changed;
};

/// Returns all plans one move away: a stage on another unit, or cut in two with an idle one; two
/// neighbouring stages merged; the units of two stages exchanged; a cut moved by a layer; another
/// micro-batch; a sample or a micro-batch moved from a replica to another or to a new one of one
/// stage; a replica removed.
std::vector<MovedPlan> find_moves(const StagePlan& plan, const StageCosts& costs);

}  // namespace motley::search
