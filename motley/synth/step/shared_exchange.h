#pragma once

#include <string>
#include <vector>

#include "motley/synth/step/rank_step.h"

namespace motley::synth {

// ---- exchanges of several values of one dtype, packed into one flat buffer

/// Packs a bucket's local items and starts their exchange. Returns the flat result.
BufferId start_exchange(RankStep& rank, const Bucket& bucket, const std::string& label);

std::vector<BufferId> finish_exchange(RankStep& rank, const Bucket& bucket, BufferId flat,
                                      const std::string& label);

/// Returns this device's stop request, f32 [1].
BufferId request_stop(RankStep& rank);

}  // namespace motley::synth
