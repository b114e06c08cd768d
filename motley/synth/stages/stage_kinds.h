#pragma once

#include <vector>

#include "motley/synth/stages/identical_ranks.h"
#include "motley/synth/stages/sharded_stages.h"

namespace motley::synth {

/// Which ranks of a step in stages do as others do: of one class (by rank), with as large parts in
/// the same stages, that exchange as much with such. What devices of a stage exchange among
/// themselves is not noted.
std::vector<IdenticalRanks::StandIn> find_stage_kinds(ShardedStages& stages,
                                                      const std::vector<int>& classes);

}  // namespace motley::synth
