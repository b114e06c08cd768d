#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// A task graph that has run and may be edited. After any edits, `update` recomputes only what they
/// can reach and stops where times are unchanged. Times equal those of find_times(graph()) to the
/// nanosecond.
///
/// Idea: tasks are kept in an order in which each follows all it waits for (their begins). An edit
/// marks the tasks it touches. Marked tasks are recomputed in that order; one whose end changes
/// marks its successors. Where edits contradict the order, the range between the two ends of the
/// contradiction is sorted anew. Cost of an update: the recomputed tasks and those of such ranges.
///
/// Transfers on shared links change each other's rates from afar. A graph with any is run again
/// from the last time before the first edit's effect with no transfer in flight; a graph whose
/// lanes slow each other is run again as a whole.
///
/// Example: task 7 moves from lane 0 to the end of lane 2, where it takes 80 ns.
///
///     auto simulation = Resimulation::start(graph);
///     simulation->move(TaskId(7), LaneId(0), LaneId(2));
///     simulation->set_duration(TaskId(7), 80);
///     if (simulation->update()) simulation->end();
class Resimulation {
 public:
  /// Runs the graph from time 0.
  static tl::expected<Resimulation, Deadlock> start(const TaskGraph& graph);

  // ---- edits; tasks named must be in the graph, `before` in the lane named (none: at its end)

  /// Requires a task without flows.
  void set_duration(TaskId task, Nanoseconds duration);
  void move(TaskId task, LaneId from, LaneId to, TaskId before = {});
  /// Inserts a new task; numbers of removed tasks are reused.
  TaskId insert(LaneId lane, TaskId before, Nanoseconds duration);
  /// Adds the task to a further lane, which must not hold it yet.
  void join(TaskId task, LaneId lane, TaskId before = {});
  /// Takes a task out of its lanes and out of all dependencies.
  void remove(TaskId task);
  void depend(TaskId task, TaskId on);
  /// Takes back one depend, or a dependency of the graph, which must exist.
  void release(TaskId task, TaskId on);

  /// Updates the times. After a deadlock the times are the old ones; edits that end it may follow.
  tl::expected<void, Deadlock> update();

  Nanoseconds begin(TaskId task) const { return tasks_[task.index()].begin; }
  Nanoseconds end(TaskId task) const { return tasks_[task.index()].end; }
  /// Returns when the last task ends.
  Nanoseconds end() const { return end_; }
  /// Returns the number of tasks that the last update recomputed.
  std::size_t looked_at() const { return looked_at_; }
  /// Returns the present graph; removed tasks are in no lane.
  TaskGraph graph() const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Task {
    Nanoseconds duration = 0, begin = 0, end = 0;
    std::int32_t slot = kNone;        // in the order; none: removed
    std::int32_t seats = kNone;       // first one
    std::int32_t waits = kNone;       // first dependency
    std::int32_t waited_for = kNone;  // first dependency on this task
    std::int64_t visit = 0;           // see sort_stretch
  };
  struct Seat {
    std::int32_t task, lane;
    std::int32_t before = kNone, after = kNone;  // seats in the lane
    std::int32_t next = kNone;                   // of the task; of the free ones
  };
  struct Dependency {
    std::int32_t task, on;
    std::int32_t next_of_task = kNone, next_of_on = kNone;
  };
  struct Lane {
    std::int32_t first = kNone, last = kNone;
  };

  Resimulation() = default;
  void set_order(const TaskTimes& times);
  void give_slot(std::int32_t task, std::int32_t after);
  void mark(std::int32_t task);
  void add_seat(std::int32_t task, std::int32_t lane, std::int32_t before);
  void drop_seat(std::int32_t seat);
  std::int32_t seat_in(std::int32_t task, std::int32_t lane) const;
  void unlink_dependency(std::int32_t dependency);
  void check_order(std::int32_t first, std::int32_t then);
  bool sort_stretches();
  bool sort_stretch(std::int32_t low, std::int32_t high);
  void propagate();
  void look_at(std::int32_t task);
  tl::expected<void, Deadlock> run_again();
  Nanoseconds first_effect() const;
  Nanoseconds last_without_flows(Nanoseconds until) const;
  template <typename Visit>
  void for_each_before(std::int32_t task, const Visit& visit) const;
  template <typename Visit>
  void for_each_after(std::int32_t task, const Visit& visit) const;

  std::vector<Task> tasks_;
  std::vector<Seat> seats_;
  std::vector<Dependency> dependencies_;
  std::vector<Lane> lanes_;
  std::vector<std::int32_t> free_tasks_, free_seats_, free_dependencies_;
  std::vector<std::int32_t> task_at_;  // by slot; none: empty
  std::vector<std::uint64_t> marks_;   // one bit per slot
  std::size_t marked_ = 0;
  std::vector<std::pair<std::int32_t, std::int32_t>> edges_;  // new since the last update
  std::vector<std::int32_t> stack_, sorted_, slots_;          // of sort_stretch
  std::int64_t visits_ = 0;
  std::vector<cost::Transfer> transfers_;
  std::vector<double> capacities_;
  std::vector<TaskGraph::Interference> interference_;
  Nanoseconds dropped_flows_ = INT64_MAX;  // first begin of removed transfers with flows
  Nanoseconds end_ = 0;
  std::size_t looked_at_ = 0;
};

}  // namespace motley::simulate
