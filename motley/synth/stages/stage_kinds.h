#pragma once

#include <vector>

#include "motley/synth/stages/identical_ranks.h"
#include "motley/synth/stages/sharded_stages.h"

namespace motley::synth {

/// Finds ranks that do as others do: of one class (`classes`, by rank), with equal parts of the
/// same stages and equal exchanges with such ranks. Exchanges within a stage do not matter.
std::vector<IdenticalRanks::StandIn> find_stage_kinds(ShardedStages& stages,
                                                      const std::vector<int>& classes);

}  // namespace motley::synth
