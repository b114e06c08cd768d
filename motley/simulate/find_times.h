#pragma once

#include <functional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/simulate/task_graph.h"

namespace motley::simulate {

/// From `from` on, a task of the lane takes `factor` (> 0) times as long, until the next piece.
struct Stretch {
  Nanoseconds from = 0;
  double factor = 1;
  bool operator==(const Stretch&) const = default;
};

/// When each task begins and ends.
struct TaskTimes {
  std::vector<Nanoseconds> begins, ends;  ///< by task
  Nanoseconds end = 0;                    ///< of the last one; TimesOptions::start for no tasks
  bool operator==(const TaskTimes&) const = default;
};

struct TimesOptions {
  Nanoseconds start = 0;  ///< nothing begins before
  /// By lane, or empty: pieces in order of time, factor 1 before the first one. A task that is in
  /// one lane only takes as much longer, also across pieces; others are not slowed.
  std::vector<std::vector<Stretch>> stretches;
  /// An earlier run's times, or null; not read where lanes slow each other. What ended before
  /// `holds_until` in it is taken to be so again; a transfer that began before then ended before
  /// then.
  const TaskTimes* before = nullptr;
  Nanoseconds holds_until = 0;
};

/// Who waits for whom: each entry's lane stands at a task which the next entry's lane, or for the
/// last one `closes_at`, must make possible. The chain closes: closes_at is a lane of the chain.
struct Deadlock {
  struct Wait {
    LaneId lane;
    TaskId task;
  };
  std::vector<Wait> chain;
  LaneId closes_at;
};

/// True when some lane slows another by a factor above 0.
bool has_interference(const TaskGraph& graph);

/// Runs the graph. Linear in tasks, dependencies and seats, with a factor log(transfers under way)
/// for each flow; where lanes slow each other (ordered_run.h), with a factor log(lanes) for each
/// task. Durations and flows must be such that all fits 2^62 ns (checked by those who make
/// graphs from input).
tl::expected<TaskTimes, Deadlock> find_times(const TaskGraph& graph,
                                             const TimesOptions& options = {});

/// "deadlock: A waits in T for B, which waits in U for A". `lane_name` and `task_name` say what to
/// call them; lanes of one name are "its other lane" to each other.
std::string describe_deadlock(const Deadlock& deadlock,
                              const std::function<std::string(LaneId)>& lane_name,
                              const std::function<std::string(LaneId, TaskId)>& task_name);

}  // namespace motley::simulate
