#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/units.h"

namespace motley::peers {

struct MicroBatchTimes {
  Seconds forward, backward;
  bool operator==(const MicroBatchTimes&) const = default;
};

/// Returns the time from the first forward to the last backward of a pipeline under 1F1B
/// (PipeDream-flush; Narayanan et al., Memory-Efficient Pipeline-Parallel DNN Training, 2021):
/// stage s of S runs S-1-s forwards, then alternates forward and backward, then runs the remaining
/// backwards. A message between neighbours takes `transfer` and overlaps computation on both sides:
/// a micro-batch may start that long after its neighbour's part ended. Requires one or more stages
/// and micro-batches. O(stages micro_batches).
///
/// Example: two stages of 1 s forward and 2 s backward, 0.5 s per message, two micro-batches.
/// Stage 0: F0 0-1, F1 1-2. Stage 1: F0 1.5-2.5, B0 2.5-4.5, F1 4.5-5.5, B1 5.5-7.5.
/// Stage 0: B0 5-7, B1 8-10. The span is 10 s.
Seconds pipeline_span(const std::vector<MicroBatchTimes>& stages, Seconds transfer,
                      std::int64_t micro_batches);

}  // namespace motley::peers
