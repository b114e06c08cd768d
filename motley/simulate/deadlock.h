#pragma once

#include <cstdint>
#include <vector>

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// A run that cannot go on: how far it has come.
struct StoppedRun {
  const TaskGraph& graph;
  std::vector<std::int32_t> next;        ///< by lane, into lane_tasks: the task it stands at
  const std::vector<Nanoseconds>& ends;  ///< by task; negative: not finished
};

/// Follows who waits for whom from a lane that is not done until the chain closes. Quadratic in
/// lanes, linear in their tasks: for a run that has failed.
Deadlock find_deadlock(const StoppedRun& run, std::size_t lane);

}  // namespace motley::simulate
