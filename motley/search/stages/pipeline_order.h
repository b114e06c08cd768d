#pragma once

#include <cstdint>
#include <vector>

#include "motley/search/stages/stage_plan.h"

namespace motley::search {

/// One pass of one micro-batch through one stage.
struct StagePass {
  bool is_backward = false;
  std::int32_t micro = 0;
  std::int32_t stage = 0;
  bool operator==(const StagePass&) const = default;
};
using PassOrder = std::vector<StagePass>;

/// What an order is chosen by. Seconds of each stage and micro-batch.
struct PipelineWork {
  std::vector<std::vector<double>> forward, backward;  ///< [stage][micro-batch]
  /// Messages between stages s and s + 1, of the largest micro-batch.
  std::vector<double> activation, gradient;
  std::vector<std::int64_t> most_in_flight;  ///< by stage; what memory allows
  /// By stage the devices that run it, one pass at a time; from 0 (StageReplica::seats). Where none
  /// has two stages, `most_in_flight` of each is all that its memory allows.
  std::vector<std::size_t> seats;
  std::size_t stages() const { return forward.size(); }
  std::int32_t micro_batches() const { return static_cast<std::int32_t>(forward[0].size()); }
};

/// Micro-batches that each stage starts before its first backward: S - s for 1F1B; for H-1F1B
/// (HARP, arXiv 2509.24859) the number grows towards the front by 1, 2 or 3 as the message to the
/// next stage takes less than a tenth of the slowest stage's work, less than half, or more; never
/// more than memory allows, as long as that is 1F1B's. kInterleaved: as 1F1B, of all stages there
/// are.
std::vector<std::int64_t> launch_counts(const PipelineWork& work, StageSchedule schedule);

/// The orders of all seats. Micro-batches pass every stage in the order of their numbers, so no
/// stages wait for each other in a circle. For kList, kDeepList and kInterleaved, the only ones
/// where a seat has several stages, they come from a run on a clock: a seat that is free takes a
/// backward if one is there, else a forward if one is there and fewer are in flight in its stage
/// than launch_counts (kDeepList: than memory allows; Graham, 1969, with the backward as the
/// priority), else waits. Where seats have several stages forwards go first, micro-batches in turns
/// of as many as there are seats: as synth/stages/stage_order.h has it, by which programs run, and
/// with enough in flight Megatron-LM's interleaved schedule (Narayanan et al., SC 2021). O(passes),
/// log of the stages for lists.
///
/// Example: two seats of two stages each, 1 forward and 2 backward, two micro-batches: F0a F1a F0c
/// F1c B0c B1c B0a B1a on the first, F0b F1b F0d F1d B0d B1d B0b B1b on the second, which begins
/// after one stage's forward in place of a device's whole work.
std::vector<PassOrder> order_passes(const PipelineWork& work, StageSchedule schedule);

/// The most micro-batches in a stage that were started and have not had their backward at any time.
std::int64_t in_flight(const PassOrder& order, std::size_t stage);

}  // namespace motley::search
