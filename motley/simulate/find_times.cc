#include "motley/simulate/find_times.h"

#include <algorithm>
#include <utility>

#include "motley/simulate/deadlock.h"
#include "motley/simulate/index.h"
#include "motley/simulate/ordered_run.h"
#include "motley/simulate/stretched_work.h"
#include "motley/simulate/transfers_under_way.h"

namespace motley::simulate {
namespace {

constexpr Nanoseconds kNoEnd = TransfersUnderWay::kNotFinished;
constexpr std::int32_t kNoTask = -1;

/// Advances every lane as far as possible; resumes a waiting lane when what it waits for is there.
class Walk {
 public:
  Walk(const TaskGraph& graph, const TimesOptions& options)
      : graph_(graph),
        options_(options),
        remaining_(graph.lane_counts),
        waiter_(graph.tasks(), kNoTask),
        lanes_(graph.lanes()) {
    times_.begins.assign(graph.tasks(), options.start);
    times_.ends.assign(graph.tasks(), kNoEnd);
    times_.end = options.start;
  }

  tl::expected<TaskTimes, Deadlock> run() {
    for (std::size_t lane = lanes_.size(); lane-- > 0;) {
      lanes_[lane].next = graph_.lane_begin[lane];
      lanes_[lane].free_at = options_.start;
      if (options_.before) take_over(lane);
      ready_.push_back(static_cast<std::int32_t>(lane));
    }
    walk_ready();
    if (!graph_.transfers.empty()) run_transfers();
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (!is_done(lane)) return tl::unexpected(deadlock_at(lane));
      times_.end = std::max(times_.end, lanes_[lane].free_at);
    }
    return std::move(times_);
  }

 private:
  struct Lane {
    std::int32_t next = 0;  // into lane_tasks
    std::int32_t next_waiter = kNoTask;
    bool has_arrived = false;  // at its next task, which is shared or waits
    Nanoseconds free_at = 0;
  };

  /// Skips the tasks whose times hold from the run before.
  void take_over(std::size_t index) {
    Lane& lane = lanes_[index];
    for (; !is_done(index); ++lane.next) {
      const auto task = at(head(index));
      const Nanoseconds begin = options_.before->begins[task], end = options_.before->ends[task];
      const bool holds = begin < options_.holds_until && end <= options_.holds_until;
      if (end == kNoEnd || !holds) return;
      times_.begins[task] = begin;
      lane.free_at = times_.ends[task] = end;
    }
  }

  bool is_done(std::size_t lane) const { return lanes_[lane].next == graph_.lane_begin[lane + 1]; }
  std::int32_t head(std::size_t lane) const { return graph_.lane_tasks[at(lanes_[lane].next)]; }

  void walk_ready() {
    while (!ready_.empty()) {
      const std::int32_t lane = ready_.back();
      ready_.pop_back();
      walk(at(lane));
    }
  }

  void run_transfers() {
    TransfersUnderWay under_way(graph_);
    transfers_ = &under_way;
    for (const std::int32_t task : first_transfers_) begin_transfer(task);
    walk_ready();
    std::vector<TransfersUnderWay::Finished> finished;
    while (under_way.next_time() != FlowNetwork::kNever) {
      finished.clear();
      under_way.advance(finished);
      for (const auto& [task, end] : finished) finish(task, end);
      walk_ready();
    }
  }

  void walk(std::size_t index) {
    Lane& lane = lanes_[index];
    const std::int32_t end = graph_.lane_begin[index + 1];
    while (lane.next < end) {
      const std::int32_t task = graph_.lane_tasks[at(lane.next)];
      Nanoseconds& begin = times_.begins[at(task)];
      // A task of several lanes begins with its last lane, which wakes the others.
      if (!lane.has_arrived) {
        begin = std::max(begin, lane.free_at);
        lane.has_arrived = true;
        if (--remaining_[at(task)] > 0) return wait(index, task);
      }
      // Waiting for the first unfinished one is enough: a woken lane checks all again.
      for (const std::int32_t on : graph_.dependencies_of(at(task))) {
        if (times_.ends[at(on)] == kNoEnd) return wait(index, on);
        begin = std::max(begin, times_.ends[at(on)]);
      }
      const Nanoseconds duration = graph_.durations[at(task)];
      // Its end depends on other transfers in flight, known only when all lanes stand still: so
      // every lane first advances as far as it can without the clock.
      if (duration < 0) {
        wait(index, task);
        return begin_transfer(task);
      }
      const bool is_alone = graph_.lane_counts[at(task)] == 1;
      const bool is_stretched = is_alone && !options_.stretches.empty();
      lane.free_at = is_stretched ? end_when_stretched(options_.stretches[index], begin,
                                                       static_cast<double>(duration))
                                  : begin + duration;
      ++lane.next;
      lane.has_arrived = false;
      finish(task, lane.free_at);
    }
  }

  void wait(std::size_t lane, std::int32_t task) {
    lanes_[lane].next_waiter = waiter_[at(task)];
    waiter_[at(task)] = static_cast<std::int32_t>(lane);
  }

  void begin_transfer(std::int32_t task) {
    // In walking order a later transfer could start before an earlier one.
    if (!transfers_) return first_transfers_.push_back(task);
    const Nanoseconds end = transfers_->enter(task, 0, times_.begins[at(task)]);
    if (end != kNoEnd) finish(task, end);
  }

  /// Wakes the lanes that are in the task or wait for it.
  void finish(std::int32_t task, Nanoseconds end) {
    times_.ends[at(task)] = end;
    std::int32_t index = waiter_[at(task)];
    while (index != kNoTask) {
      Lane& lane = lanes_[at(index)];
      if (head(at(index)) == task) {
        lane.free_at = end;
        ++lane.next;
        lane.has_arrived = false;
      }
      ready_.push_back(index);
      index = lane.next_waiter;
    }
  }

  Deadlock deadlock_at(std::size_t lane) const {
    StoppedRun run{graph_, {}, times_.ends};
    for (const Lane& each : lanes_) run.next.push_back(each.next);
    return find_deadlock(run, lane);
  }

  const TaskGraph& graph_;
  const TimesOptions& options_;
  TaskTimes times_;
  std::vector<std::int32_t> remaining_;  // by task: lanes that have not reached it
  std::vector<std::int32_t> waiter_;     // by task: a lane in or awaiting it, then next_waiter
  std::vector<Lane> lanes_;
  std::vector<std::int32_t> ready_;            // lanes that can continue
  std::vector<std::int32_t> first_transfers_;  // reached before any flow has started
  TransfersUnderWay* transfers_ = nullptr;
};

}  // namespace

tl::expected<TaskTimes, Deadlock> find_times(const TaskGraph& graph, const TimesOptions& options) {
  return has_interference(graph) ? run_in_order(graph, options) : Walk(graph, options).run();
}

}  // namespace motley::simulate
