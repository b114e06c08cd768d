#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/simulate/task_graph.h"

namespace motley::simulate {

/// From `from` until the next stretch, tasks of the lane take `factor` (> 0) times as long.
struct Stretch {
  Nanoseconds from = 0;
  double factor = 1;
  bool operator==(const Stretch&) const = default;
};

struct TaskTimes {
  std::vector<Nanoseconds> begins, ends;  ///< by task
  Nanoseconds end = 0;                    ///< of the last task; TimesOptions::start without tasks
  bool operator==(const TaskTimes&) const = default;
};

struct TimesOptions {
  Nanoseconds start = 0;  ///< nothing begins before
  /// By lane, or empty: ordered in time, factor 1 before the first. Only tasks in a single lane are
  /// slowed, also across stretches.
  std::vector<std::vector<Stretch>> stretches;
  /// An earlier run's times, or null; ignored where lanes slow each other. Tasks that ended before
  /// `holds_until` keep their times; a transfer that began before it must have ended before it.
  const TaskTimes* before = nullptr;
  Nanoseconds holds_until = 0;
};

/// A cycle of waits: each entry's lane stands at a task that the next entry's lane must enable. The
/// last entry's is enabled by `closes_at`, which is a lane of the chain.
struct Deadlock {
  struct Wait {
    LaneId lane;
    TaskId task;
  };
  std::vector<Wait> chain;
  LaneId closes_at;
};

/// Returns whether some lane slows another by a factor above 0.
bool has_interference(const TaskGraph& graph);

/// Runs the graph. Linear in tasks, dependencies and seats, with a factor log(transfers in flight)
/// per flow; where lanes slow each other (ordered_run.h), a factor log(lanes) per task. Everything
/// must fit in 2^62 ns; callers that make graphs from input check this.
tl::expected<TaskTimes, Deadlock> find_times(const TaskGraph& graph,
                                             const TimesOptions& options = {});

/// Prints "deadlock: A waits in T for B, which waits in U for A", with the names given. Different
/// lanes of one name are "its other lane" to each other.
std::string describe_deadlock(const Deadlock& deadlock,
                              const std::function<std::string(LaneId)>& lane_name,
                              const std::function<std::string(LaneId, TaskId)>& task_name);

}  // namespace motley::simulate
