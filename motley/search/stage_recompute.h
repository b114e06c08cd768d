#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/model_stage_costs.h"

namespace motley::search {

/// What a stage keeps: of how many samples, and of how many in each micro-batch.
struct KeptSamples {
  std::int64_t in_flight = 1, micro_batch = 1;
};

/// Lets more of a stage be done again, by layer in `again`, until each of its devices holds
/// `lacking` bytes less, by its layers' bytes: layer after layer what is cheap, then all. False if
/// that is not enough; `again` then has all that saves anything.
bool save_memory(const ModelStageCosts& costs, const PlannedStage& stage,
                 const KeptSamples& samples, Bytes lacking, std::vector<Recompute>& again);

}  // namespace motley::search
