#pragma once

#include <cstdint>
#include <vector>

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// The progress of a run that cannot continue.
struct StoppedRun {
  const TaskGraph& graph;
  std::vector<std::int32_t> next;        ///< by lane, into lane_tasks: its current task
  const std::vector<Nanoseconds>& ends;  ///< by task; negative: not finished
};

/// Follows waits until they close. Quadratic in lanes, linear in tasks: only for failed runs.
Deadlock find_deadlock(const StoppedRun& run, std::size_t lane);

}  // namespace motley::simulate
