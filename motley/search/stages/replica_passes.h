#pragma once

#include <cstdint>
#include <vector>

#include "motley/plan/pass_order.h"
#include "motley/search/stages/costs/stage_sums.h"
#include "motley/search/stages/stage_transfers.h"

namespace motley::search {

/// What a replica's passes take.
struct ReplicaPasses {
  std::vector<std::int64_t> sizes;  ///< samples by micro-batch
  std::int64_t largest = 0;         ///< of them
  plan::PipelineWork work;
  std::vector<double> update;  ///< by stage
  Seconds time(const plan::StagePass& pass) const {
    const auto s = static_cast<std::size_t>(pass.stage), m = static_cast<std::size_t>(pass.micro);
    return Seconds((pass.is_backward ? work.backward : work.forward)[s][m]);
  }
};

/// Returns what the passes take, and how many micro-batches memory allows in flight. `placed`: the
/// replica's stages, whose messages `transfers` prices.
Result<ReplicaPasses> price_passes(const StageSums& sums, const StageReplica& replica,
                                   const std::vector<PlacedStage>& placed,
                                   StageTransfers& transfers);

/// Returns what the devices of some stages hold at most, as they do their passes in an order.
Bytes peak_of(const StageSums& sums, const StageReplica& replica, std::int64_t largest_micro_batch,
              const std::vector<std::size_t>& stages, const plan::PassOrder& order);

/// Returns the seconds of a stage's update.
double update_seconds(const StageSums& sums, const PlannedStage& stage, std::int64_t micro_batch);

}  // namespace motley::search
