#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_transfers.h"

namespace motley::search {

/// Gradients that are summed by all stages that hold them.
struct GradientSum {
  std::vector<std::pair<std::size_t, std::size_t>> members;  ///< replica and stage
  cost::Transfer transfer;
};

/// Returns the sums of tied weights that two stages of a replica hold on separate devices; these
/// come before the others.
Result<std::vector<GradientSum>> find_tied_sums(const StageSums& sums, const StagePlan& plan,
                                                const PlacedStages& placed,
                                                StageTransfers& transfers);

/// Returns the sums of each stretch of layers over all replicas, in the order in which stages do
/// them: one after the other, all members of one at once. The one that can begin first does, of
/// equals that of the later layers, which are there first: in one order of the layers stages that
/// are cut differently would wait for each other in a chain.
Result<std::vector<GradientSum>> find_replica_sums(const StageSums& sums,
                                                   const PlacedStages& placed,
                                                   StageTransfers& transfers);

/// Returns the seconds of summing the gradients of the layers that all first stages have, when
/// nothing else is under way; 0 for one replica.
Result<Seconds> first_sum(const StageSums& sums, const PlacedStages& placed);

}  // namespace motley::search
