#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "motley/base/ids.h"
#include "motley/cost/links/transfer.h"
#include "motley/trace/trace.h"

namespace motley::simulate {

using trace::Nanoseconds;
using TaskId = Id<struct TaskTag>;
using LaneId = Id<struct LaneTag>;
using TransferId = Id<struct TransferTag>;

/// Tasks on lanes, in flat arrays. A lane (a device's compute queue, its transfer queue, a
/// parameter server) runs its tasks one after the other in a fixed order. A task begins when its
/// predecessors in all its lanes and all its dependencies have finished; it occupies all its lanes
/// until it ends. In one lane it is an instruction, or a send with its receive in the lane of a
/// pair of devices; in a lane of every member it is a collective.
///
/// A task takes its fixed duration or, where durations[t] is negative, the time of transfers[-1 -
/// durations[t]] on links that it may share with other transfers.
///
/// The order in each lane is given, so begin(t) = max of end(p) over the tasks p before t in its
/// lanes and its dependencies. Times are therefore unique in whatever order they are found. Only
/// transfers that share links need an order in time, with ties by task.
///
/// Example: two devices with a compute and a transfer lane each, 100 and 130 ns of backward, 60 ns
/// of all-reduce, 10 ns of update.
///
///     TaskGraphBuilder builder;
///     const LaneId a = builder.add_lane(), a_wire = builder.add_lane();
///     const LaneId b = builder.add_lane(), b_wire = builder.add_lane();
///     const TaskId a_back = builder.add(a, 100), b_back = builder.add(b, 130);
///     const TaskId sum = builder.add(a_wire, 60);
///     builder.join(sum, b_wire);
///     for (const TaskId back : {a_back, b_back}) builder.depend(sum, back);
///     for (const LaneId lane : {a, b}) builder.depend(builder.add(lane, 10), sum);
///     find_times(std::move(builder).build())->end;  // find_times.h: 130 + 60 + 10 = 200
///
/// Lanes may slow each other: where interference[l] names a lane, tasks in lane l only run at 1 /
/// (1 + factor) of their speed while that lane has a task in flight. This needs an order in time.
struct TaskGraph {
  struct Interference {
    std::int32_t by = -1;  ///< a lane; -1: none
    double factor = 0;     ///< >= 0
    bool operator==(const Interference&) const = default;
  };

  std::vector<Nanoseconds> durations;          ///< by task; -1 - k: the task is transfers[k]
  std::vector<std::int32_t> lane_counts;       ///< by task: number of its lanes, at least one
  std::vector<std::int32_t> lane_begin;        ///< tasks of lane l: lane_tasks[lane_begin[l] ..
  std::vector<std::int32_t> lane_tasks;        ///< lane_begin[l + 1]), in order
  std::vector<std::int32_t> dependency_begin;  ///< the same for a task's dependencies
  std::vector<std::int32_t> dependencies;
  std::vector<cost::Transfer> transfers;   ///< each with flows
  std::vector<double> capacities;          ///< of the links the transfers use, bytes/s, > 0
  std::vector<Interference> interference;  ///< by lane; empty: none

  std::size_t tasks() const { return durations.size(); }
  std::size_t lanes() const { return lane_begin.size() - 1; }
  std::span<const std::int32_t> tasks_of(std::size_t lane) const {
    return std::span(lane_tasks)
        .subspan(static_cast<std::size_t>(lane_begin[lane]),
                 static_cast<std::size_t>(lane_begin[lane + 1] - lane_begin[lane]));
  }
  std::span<const std::int32_t> dependencies_of(std::size_t task) const {
    return std::span(dependencies)
        .subspan(static_cast<std::size_t>(dependency_begin[task]),
                 static_cast<std::size_t>(dependency_begin[task + 1] - dependency_begin[task]));
  }
  bool operator==(const TaskGraph&) const = default;
};

/// Builds a task graph. Lanes and tasks are numbered in the order of adding; a lane runs its tasks
/// in that order. Dependencies may point anywhere; a cycle shows as a deadlock.
class TaskGraphBuilder {
 public:
  LaneId add_lane();
  /// Adds a task of a fixed duration >= 0.
  TaskId add(LaneId lane, Nanoseconds duration);
  /// Adds a transfer; any number of tasks may use it. Without flows it takes the sum of its delays.
  TransferId add_transfer(cost::Transfer transfer);
  TaskId add(LaneId lane, TransferId transfer);
  /// Replaces the task's duration or transfer.
  void set_transfer(TaskId task, TransferId transfer);
  /// Adds the task to a further lane, behind its tasks so far.
  void join(TaskId task, LaneId lane);
  void depend(TaskId task, TaskId on);
  /// Sets capacities in bytes/s, all > 0, of all links that transfers use.
  void set_links(std::vector<double> capacities);
  /// Slows tasks in `lane` only by `factor` (>= 0) while `by` has one in flight. Last call wins.
  void slow(LaneId lane, LaneId by, double factor);
  TaskGraph build() &&;

 private:
  struct Pair {
    std::int32_t first, second;
  };
  TaskId add_task(LaneId lane, Nanoseconds duration);

  std::int32_t lanes_ = 0;
  std::vector<Nanoseconds> transfer_durations_;  // by transfer: as in TaskGraph::durations
  std::vector<Pair> seats_;                      // lane, task
  std::vector<Pair> dependencies_;               // task, on
  TaskGraph graph_;
};

/// Rounds to the nearest.
Nanoseconds to_nanoseconds(Seconds time);

/// The devices, or other units, that own a lane.
struct LaneOwners {
  std::int32_t first = 0, second = -1;  ///< -1: a single owner
};

/// Repeats the graph `times` times: task t of copy k is k * graph.tasks() + t. A unit begins its
/// next copy when all its lanes have finished the last one; `owners` by lane. Linear, except for
/// units of many lanes: each waits for all.
TaskGraph repeat(const TaskGraph& graph, int times, std::span<const LaneOwners> owners);

}  // namespace motley::simulate
