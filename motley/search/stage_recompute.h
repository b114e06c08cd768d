#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/model_stage_costs.h"

namespace motley::search {

/// What a stage keeps: of how many samples, and of how many in each micro-batch.
struct KeptSamples {
  std::int64_t in_flight = 1, micro_batch = 1;
};

/// What each device of the stage holds, by its layers' bytes, with what PyTorch itself does.
Bytes held_by(const ModelStageCosts& costs, const PlannedStage& stage, const KeptSamples& samples,
              const std::vector<Recompute>& again);

/// Lets more of a stage be done again, by layer in `again`, until each of its devices holds
/// `lacking` bytes less, by its layers' bytes: layer after layer what is cheap, then all. False if
/// that is not enough; `again` then has all that saves anything.
bool save_memory(const ModelStageCosts& costs, const PlannedStage& stage,
                 const KeptSamples& samples, Bytes lacking, std::vector<Recompute>& again);

/// Lets less of it be done again, layer after layer from the first that is, all before what is
/// cheap, as long as each of its devices holds at most `spare` bytes more by its layers' bytes. Is
/// anything less?
bool use_memory(const ModelStageCosts& costs, const PlannedStage& stage, const KeptSamples& samples,
                Bytes spare, std::vector<Recompute>& again);

}  // namespace motley::search
