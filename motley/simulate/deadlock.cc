#include "motley/simulate/deadlock.h"

#include <fmt/format.h>

#include <algorithm>

#include "motley/simulate/index.h"

namespace motley::simulate {
namespace {

bool is_done(const StoppedRun& run, std::size_t lane) {
  return run.next[lane] == run.graph.lane_begin[lane + 1];
}

std::int32_t head(const StoppedRun& run, std::size_t lane) {
  return run.graph.lane_tasks[at(run.next[lane])];
}

bool has_seat(const StoppedRun& run, std::size_t lane, std::int32_t task) {
  const auto tasks = run.graph.tasks_of(lane);
  return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
}

/// Returns a lane that must advance before the task at the head of `lane` can begin: one that
/// shares the task and has not reached it, else one that runs a dependency of the task.
std::size_t lane_waited_for(const StoppedRun& run, std::size_t lane) {
  const std::int32_t task = head(run, lane);
  for (std::size_t other = 0; other < run.next.size(); ++other)
    if (!is_done(run, other) && head(run, other) != task && has_seat(run, other, task))
      return other;
  for (const std::int32_t on : run.graph.dependencies_of(at(task)))
    for (std::size_t other = 0; other < run.next.size(); ++other)
      if (run.ends[at(on)] < 0 && has_seat(run, other, on)) return other;
  return lane;
}

}  // namespace

Deadlock find_deadlock(const StoppedRun& run, std::size_t lane) {
  Deadlock deadlock;
  std::vector<bool> seen(run.next.size());
  while (!seen[lane]) {
    seen[lane] = true;
    deadlock.chain.push_back({LaneId(static_cast<std::int64_t>(lane)), TaskId(head(run, lane))});
    lane = lane_waited_for(run, lane);
  }
  deadlock.closes_at = LaneId(static_cast<std::int64_t>(lane));
  return deadlock;
}

std::string describe_deadlock(const Deadlock& deadlock,
                              const std::function<std::string(LaneId)>& lane_name,
                              const std::function<std::string(LaneId, TaskId)>& task_name) {
  std::string text = fmt::format("deadlock: {} ", lane_name(deadlock.chain.front().lane));
  for (std::size_t i = 0; i < deadlock.chain.size(); ++i) {
    const auto& [lane, task] = deadlock.chain[i];
    const bool is_last = i + 1 == deadlock.chain.size();
    const LaneId next = is_last ? deadlock.closes_at : deadlock.chain[i + 1].lane;
    const std::string name = lane_name(next);
    text += fmt::format("waits in {} for {}", task_name(lane, task),
                        next != lane && name == lane_name(lane) ? "its other lane" : name);
    if (!is_last) text += ", which ";
  }
  return text;
}

}  // namespace motley::simulate
