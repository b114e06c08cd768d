#pragma once

#include <vector>

#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// A plan with one thing changed, and the replicas that are not as they were. Places are not given.
struct MovedPlan {
  StagePlan plan;
  std::vector<std::size_t> changed;
};

/// All plans one move away: a stage on another unit, or cut in two with one that is idle; two
/// neighbouring stages made one; the units of two stages exchanged; a cut moved by a layer; another
/// micro-batch; samples, one or a micro-batch, from a replica to another or to a new one of one
/// stage; a replica given up.
std::vector<MovedPlan> find_moves(const StagePlan& plan, const StageCosts& costs);

}  // namespace motley::search
