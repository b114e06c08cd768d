#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "motley/graph/work.h"

/// The order of pipeline passes: the search asks it for estimates, the lowering for programs.

namespace motley::plan {

/// Work of one region on one micro-batch that waits for no other region on the way: consecutive
/// operators of the forward or of the backward pass.
struct StageTask {
  enum class Pass : std::uint8_t {
    kForward,
    kBackward,
    kWeights,  ///< the part of the backward pass that no other region waits for
  };

  std::size_t region = 0;
  std::size_t micro_batch = 0;
  Pass pass = Pass::kForward;
  double work = 0;                 ///< time on the region's devices, in any unit
  std::vector<std::size_t> needs;  ///< tasks that come before
};

/// Seconds of an operator on a nominal device, by which tasks are compared; a region's `speed` is
/// relative to it.
double order_seconds(const graph::Work& work);

/// The devices and limits of a region.
struct TaskPlace {
  std::vector<std::size_t> devices;  ///< each runs one task at a time
  std::int64_t ahead = 1;            ///< micro-batches that may be in flight in the region
  double lag = 0;                    ///< after tasks of other regions that a task here needs
  /// Number of device sets where a device has several regions of a replica (interleaved stages):
  /// micro-batches go through them in groups of this many. 0: each region has its own devices.
  std::size_t turn = 0;
  /// Do a forward and a backward task of two micro-batches run together where both can begin?
  bool pairs = false;
};

/// A task with its times, or two that run together, the forward one first. Times are in the unit of
/// StageTask::work.
struct OrderedTask {
  std::vector<std::size_t> tasks;
  double begin = 0, end = 0;
};

/// Returns the tasks in the order in which they begin; none waits for a later one. List scheduling
/// on a clock: the task that can begin first does. Of those that can begin at once backward tasks
/// go first, then forward ones, then weights; then lower micro-batches, then lower numbers. A
/// micro-batch begins in a region when those before it have begun and fewer than `ahead` are in
/// flight; it ends with the last of its tasks there. A backward task lets the next micro-batch
/// begin before it, if that can begin before the task would end: regions behind have work while
/// messages are on their way, which takes the `lag` of the region that gets them. `ahead` of S,
/// S - 1, ... 1 in a chain of S regions is 1F1B, the number of micro-batches GPipe. Tasks are
/// acyclic, and those of a micro-batch need none of a later one. O(tasks x regions).
///
/// Where devices have several regions, forward tasks go first, as far as `ahead` lets them: another
/// region waits for what one produces. Of those of one direction the lowest `turn` micro-batches
/// go first, and of these forward the first region's, backward the last one's. So a chain of S sets
/// of devices, V regions each, takes (m + (S - 1) / V) times a micro-batch, as Megatron-LM's
/// interleaved schedule does (Narayanan et al., SC 2021), for `ahead` twice the number of regions
/// from here on; with backward tasks first up to a sixth more.
///
/// Where a region pairs, a forward or backward task runs together with the first of the other
/// direction and another micro-batch that can begin before it would end. Beside a backward task one
/// micro-batch more than `ahead` may begin. Results of a pair are there at its end, so a chain of S
/// regions that all pair needs `ahead` of 2 S - 1, 2 S - 3, ... 1 to be busy in between.
///
/// Example: two regions of a device each, 1 forward and 2 backward, two micro-batches, ahead 2 and
/// 1: F0, F1 and after F0 on the other f0; there b0 follows at 2, f1 at 4, b1 at 5; B0 at 4, B1
/// at 7.
std::vector<OrderedTask> order_tasks(const std::vector<StageTask>& tasks,
                                     const std::vector<TaskPlace>& regions);

/// In which order a stage of a chain runs forwards and backwards.
enum class StageSchedule {
  k1F1B,   ///< stage s of S starts min(m, S - s) micro-batches, then one backward, one forward
  kH1F1B,  ///< more of them in front of slow messages
  kWide,   ///< twice as many as 1F1B, if memory allows: unequal stages need not wait for each other
  kList,   ///< whatever is ready, backward first, with as many in flight as kWide
  kDeepList,     ///< the same with as many as memory allows
  kGPipe,        ///< all forwards, then all backwards
  kInterleaved,  ///< as kList, with as many in flight as 1F1B: of stages that share devices
};
/// GPipe holds most and gains nothing over the others.
inline constexpr StageSchedule kTriedSchedules[] = {StageSchedule::k1F1B, StageSchedule::kH1F1B,
                                                    StageSchedule::kWide, StageSchedule::kList,
                                                    StageSchedule::kDeepList};
/// Of stages that share devices.
inline constexpr StageSchedule kInterleavedSchedules[] = {
    StageSchedule::kInterleaved, StageSchedule::kList, StageSchedule::kDeepList};
std::string_view schedule_name(StageSchedule schedule);

/// One pass of one micro-batch through one stage.
struct StagePass {
  bool is_backward = false;
  std::int32_t micro = 0;
  std::int32_t stage = 0;
  bool operator==(const StagePass&) const = default;
};
using PassOrder = std::vector<StagePass>;

/// A chain of stages: seconds of each stage and micro-batch, and limits.
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

/// Returns the micro-batches that each stage starts before its first backward: S - s for 1F1B; for
/// H-1F1B (HARP, arXiv 2509.24859) the number grows towards the front by 1, 2 or 3 as the message
/// to the next stage takes less than a tenth of the slowest stage's work, less than half, or more;
/// never more than memory allows, as long as that is 1F1B's. kInterleaved: as 1F1B, of all stages.
std::vector<std::int64_t> launch_counts(const PipelineWork& work, StageSchedule schedule);

/// Returns the order of each seat. Micro-batches pass every stage in the order of their numbers, so
/// no stages wait for each other in a circle. The orders of kList, kDeepList and kInterleaved, the
/// only schedules of seats with several stages, come from list scheduling as in order_tasks,
/// without the rule that lets a micro-batch begin before a backward task: a free seat takes a
/// backward if one is there (Graham, 1969), else a forward if one is there and fewer are in flight
/// in its stage than launch_counts (kDeepList: than memory allows), else waits.
///
/// Example: two seats of two stages each, 1 forward and 2 backward, two micro-batches: F0a F1a F0c
/// F1c B0c B1c B0a B1a on the first, F0b F1b F0d F1d B0d B1d B0b B1b on the second, which begins
/// after one stage's forward in place of a device's whole work.
std::vector<PassOrder> order_passes(const PipelineWork& work, StageSchedule schedule);

/// Returns the most micro-batches that a stage has started and not had the backward of, at any
/// time.
std::int64_t in_flight(const PassOrder& order, std::size_t stage);

}  // namespace motley::plan
