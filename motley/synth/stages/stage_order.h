#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "motley/graph/work.h"

namespace motley::synth {

/// What one region does of one micro-batch without waiting for others on the way: consecutive
/// operators of the forward or of the backward pass.
struct StageTask {
  enum class Pass : std::uint8_t {
    kForward,
    kBackward,
    kWeights,  ///< of the backward pass, what no other region waits for
  };

  std::size_t region = 0;
  std::size_t micro_batch = 0;
  Pass pass = Pass::kForward;
  double work = 0;                 ///< time on the region's devices, in any unit
  std::vector<std::size_t> needs;  ///< tasks that come before
};

/// Seconds of an operator on some device, by which tasks are compared; a region's `speed` says how
/// much faster its devices are.
double order_seconds(const graph::Work& work);

/// Who does the tasks of a region.
struct TaskPlace {
  std::vector<std::size_t> devices;  ///< each does one task at a time
  std::int64_t ahead = 1;            ///< micro-batches that may be under way in the region
  double lag = 0;                    ///< after tasks of other regions that a task here needs
  /// Where devices have several regions of a replica, in turns: how many micro-batches at once go
  /// through them, about as many as there are sets of devices. 0: each region has its own.
  std::size_t turn = 0;
  /// Are a forward and a backward task of two micro-batches done together where both can begin?
  bool pairs = false;
};

/// A task in its place, or two that are done together, the forward one first; and on the clock, in
/// the unit of StageTask::work.
struct OrderedTask {
  std::vector<std::size_t> tasks;
  double begin = 0, end = 0;
};

/// The order in which the tasks begin, such that none waits for a later one: list scheduling on a
/// clock. The task that can begin first does; of those that can begin at once backward ones,
/// forward ones, those of weights, then lower micro-batches, then lower numbers. A micro-batch
/// begins in a region when those before it have and fewer than `ahead` are under way, which ends
/// with the last of its tasks there. A backward task lets the next micro-batch begin before it, if
/// that can before it would be over: so the regions behind have work while messages are on their
/// way, which takes the `lag` of the region that gets them. `ahead` of S, S - 1, ... 1 in a chain
/// of S regions is 1F1B, as many as there are micro-batches GPipe. Tasks are acyclic, and those of
/// a micro-batch need none of a later one. O(tasks x tasks ready at once).
///
/// Where devices have several regions, forward tasks go first, as long as `ahead` lets them: what
/// one region does at once another waits for. Of those of one direction the ones of the lowest
/// `turn` micro-batches do, and of these forward the first region's, backward the last one's. So a
/// chain of S sets of devices, V regions each, takes (m + (S - 1) / V) times a micro-batch, as
/// Megatron-LM's interleaved schedule does (Narayanan et al., SC 2021), for `ahead` twice the
/// number of regions from here on; with backward tasks first up to a sixth more.
///
/// Where a region pairs, a forward or backward task is done together with the first of the other
/// direction and another micro-batch that can begin before it would be over. Beside a backward task
/// one micro-batch more than `ahead` may begin. What a pair gives is there at its end, so a chain
/// of S regions that all pair needs `ahead` of 2 S - 1, 2 S - 3, ... 1 to be busy in between.
///
/// Example: two regions of a device each, 1 forward and 2 backward, two micro-batches, ahead 2 and
/// 1: F0, F1 and after F0 on the other f0; there b0 follows at 2, f1 at 4, b1 at 5; B0 at 4, B1
/// at 7.
std::vector<OrderedTask> order_tasks(const std::vector<StageTask>& tasks,
                                     const std::vector<TaskPlace>& regions);

}  // namespace motley::synth
