#pragma once

#include <string>
#include <vector>

#include "motley/synth/step/rank_step.h"

namespace motley::synth {

// ---- values of one dtype that travel together: packed into one flat buffer, exchanged, unpacked

/// Packs what is here of a bucket's items and starts their exchange; its flat result.
BufferId start_exchange(RankStep& rank, const Bucket& bucket, const std::string& label);

/// The items as they are after the exchange, in their order.
std::vector<BufferId> finish_exchange(RankStep& rank, const Bucket& bucket, BufferId flat,
                                      const std::string& label);

/// Does this device's user want to stop? f32 [1].
BufferId request_stop(RankStep& rank);

}  // namespace motley::synth
