#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// One pass of one micro-batch through one stage.
struct StagePass {
  bool is_backward = false;
  std::int32_t micro = 0;
  bool operator==(const StagePass&) const = default;
};
using PassOrder = std::vector<StagePass>;

/// What an order is chosen by. Seconds of each stage and micro-batch.
struct PipelineWork {
  std::vector<std::vector<double>> forward, backward;  ///< [stage][micro-batch]
  /// Messages between stages s and s + 1, of the largest micro-batch.
  std::vector<double> activation, gradient;
  std::vector<std::int64_t> most_in_flight;  ///< by stage; what memory allows
  std::size_t stages() const { return forward.size(); }
  std::int32_t micro_batches() const { return static_cast<std::int32_t>(forward[0].size()); }
};

/// Micro-batches that each stage starts before its first backward: S - s for 1F1B; for H-1F1B
/// (HARP, arXiv 2509.24859) the number grows towards the front by 1, 2 or 3 as the message to the
/// next stage takes less than a tenth of the slowest stage's work, less than half, or more; never
/// more than memory allows, as long as that is 1F1B's.
std::vector<std::int64_t> launch_counts(const PipelineWork& work, StageSchedule schedule);

/// The orders of all stages. Micro-batches pass every stage in the order of their numbers, so no
/// stages wait for each other in a circle. For kList they come from a run on a clock: a stage that
/// is free takes a backward if one is there, else a forward if one is there and memory allows
/// another one in flight (Graham, 1969, with the backward as the priority), else waits. O(stages
/// micro-batches), log of the stages for kList.
std::vector<PassOrder> order_passes(const PipelineWork& work, StageSchedule schedule);

/// The most micro-batches that were started and have not had their backward at any time.
std::int64_t in_flight(const PassOrder& order);

}  // namespace motley::search
