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

/// Work on lanes, flat. A lane (a device's compute queue, its transfer queue, a parameter server)
/// runs its tasks one after the other in a fixed order. A task begins when all lanes it is in have
/// finished what comes before it and all tasks it depends on have finished; it then occupies all
/// its lanes until it ends. In one lane it is an instruction, or a send with its receive in the
/// lane of what one device sends to another; in a lane of every member it is a collective.
///
/// A task takes its fixed duration or, where durations[t] is negative, what transfers[-1 -
/// durations[t]] takes on links that it may share with other transfers.
///
/// As the order in each lane is given, begin(t) = max of end(p) over the tasks p before t in its
/// lanes and those it depends on. Times are therefore unique, whatever the order they are found in;
/// only transfers that share links need an order in time, with ties by task.
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
/// Lanes may slow each other: where interference[l] names a lane, tasks that are in lane l only go
/// at 1 / (1 + factor) of their speed while a task of that lane is under way, from its begin to its
/// end. Then compute, too, needs an order in time.
struct TaskGraph {
  struct Interference {
    std::int32_t by = -1;  ///< a lane; -1: none
    double factor = 0;     ///< >= 0
    bool operator==(const Interference&) const = default;
  };

  std::vector<Nanoseconds> durations;          ///< by task; -1 - k: the task is transfers[k]
  std::vector<std::int32_t> lane_counts;       ///< by task: how many lanes it is in, at least one
  std::vector<std::int32_t> lane_begin;        ///< tasks of lane l: lane_tasks[lane_begin[l] ..
  std::vector<std::int32_t> lane_tasks;        ///< lane_begin[l + 1]), in order
  std::vector<std::int32_t> dependency_begin;  ///< the same for what a task depends on
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

/// Puts a task graph together. Lanes and tasks are numbered as they are added, and a lane runs its
/// tasks as they were added to it. Dependencies may point anywhere; a cycle shows as a deadlock.
class TaskGraphBuilder {
 public:
  LaneId add_lane();
  /// A task of a fixed duration >= 0.
  TaskId add(LaneId lane, Nanoseconds duration);
  /// A transfer; any number of tasks may be made of one. Without flows it takes the sum of its
  /// delays.
  TransferId add_transfer(cost::Transfer transfer);
  TaskId add(LaneId lane, TransferId transfer);
  /// Makes the task of this transfer, in place of what it was added with.
  void set_transfer(TaskId task, TransferId transfer);
  /// The task is in this lane too, after what was added to it so far.
  void join(TaskId task, LaneId lane);
  void depend(TaskId task, TaskId on);
  /// Capacities of the links in bytes/s, all > 0; the flows of transfers use no others.
  void set_links(std::vector<double> capacities);
  /// Tasks that are in `lane` only are slowed by `factor` (>= 0) while `by` has one under way; the
  /// last call for a lane counts.
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

/// Seconds of a phase's delay in whole nanoseconds.
Nanoseconds delay_of(const cost::TransferPhase& phase);

/// The devices, or other units, that a lane belongs to.
struct LaneOwners {
  std::int32_t first = 0, second = -1;  ///< -1: it belongs to one
};

/// The graph run `times` times over: copies one after the other, task t of copy k numbered
/// k * graph.tasks() + t. A unit begins its next copy when all its lanes have finished the last
/// one; `owners` by lane. Linear, but for units of many lanes: each waits for all.
TaskGraph repeat(const TaskGraph& graph, int times, std::span<const LaneOwners> owners);

}  // namespace motley::simulate
