#include "motley/simulate/ordered_run.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <span>
#include <utility>

#include "motley/simulate/deadlock.h"
#include "motley/simulate/index.h"
#include "motley/simulate/stretched_work.h"
#include "motley/simulate/transfers_under_way.h"

namespace motley::simulate {
namespace {

constexpr Nanoseconds kNotFinished = TransfersUnderWay::kNotFinished;
constexpr std::int32_t kNone = -1;

/// Rows of values by key, in one array.
class Rows {
 public:
  explicit Rows(std::size_t keys) : begin_(keys + 1, 0) {}
  void count(std::int32_t key) { ++begin_[at(key) + 1]; }
  void end_counting() {
    for (std::size_t key = 1; key < begin_.size(); ++key) begin_[key] += begin_[key - 1];
    values_.resize(at(begin_.back()));
    next_.assign(begin_.begin(), begin_.end() - 1);
  }
  void add(std::int32_t key, std::int32_t value) { values_[at(next_[at(key)]++)] = value; }
  std::span<const std::int32_t> of(std::int32_t key) const {
    return std::span(values_).subspan(at(begin_[at(key)]),
                                      at(begin_[at(key) + 1] - begin_[at(key)]));
  }

 private:
  std::vector<std::int32_t> begin_, next_, values_;
};

class OrderedRun {
 public:
  OrderedRun(const TaskGraph& graph, const TimesOptions& options)
      : graph_(graph),
        options_(options),
        transfers_(graph),
        remaining_(graph.lane_counts),
        lanes_of_(graph.tasks()),
        waiting_for_(graph.tasks()),
        slowed_by_(graph.lanes()),
        lanes_(graph.lanes()),
        now_(options.start) {
    times_.begins.assign(graph.tasks(), options.start);
    times_.ends.assign(graph.tasks(), kNotFinished);
    times_.end = options.start;
    find_rows();
  }

  tl::expected<TaskTimes, Deadlock> run() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      lanes_[lane].next = graph_.lane_begin[lane];
      arrive(lane);
    }
    begin_ready();
    while (go_on()) begin_ready();
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
      if (!is_done(lane)) return tl::unexpected(deadlock_at(lane));
    return std::move(times_);
  }

 private:
  struct Lane {
    std::int32_t next = 0;  // into lane_tasks
    bool has_work = false;  // a task of this lane only is in flight
    bool is_busy = false;   // any task is in flight
    double left = 0;        // work left at factor 1, at `since`
    double stretch = 0;     // by other lanes, since then; 0: unknown
    Nanoseconds since = 0, end = 0;
  };
  struct End {
    Nanoseconds at;
    std::int32_t task;
    bool operator>(const End& o) const { return std::pair(at, task) > std::pair(o.at, o.task); }
  };

  void find_rows() {
    for (const std::int32_t task : graph_.lane_tasks) lanes_of_.count(task);
    for (const std::int32_t on : graph_.dependencies) waiting_for_.count(on);
    for (const TaskGraph::Interference& each : graph_.interference)
      if (each.by != kNone) slowed_by_.count(each.by);
    for (Rows* rows : {&lanes_of_, &waiting_for_, &slowed_by_}) rows->end_counting();
    for (std::size_t lane = 0; lane < graph_.lanes(); ++lane)
      for (const std::int32_t task : graph_.tasks_of(lane))
        lanes_of_.add(task, static_cast<std::int32_t>(lane));
    for (std::size_t task = 0; task < graph_.tasks(); ++task) {
      const auto dependencies = graph_.dependencies_of(task);
      remaining_[task] += static_cast<std::int32_t>(dependencies.size());
      for (const std::int32_t on : dependencies)
        waiting_for_.add(on, static_cast<std::int32_t>(task));
    }
    for (std::size_t lane = 0; lane < graph_.interference.size(); ++lane)
      if (graph_.interference[lane].by != kNone)
        slowed_by_.add(graph_.interference[lane].by, static_cast<std::int32_t>(lane));
  }

  bool is_done(std::size_t lane) const { return lanes_[lane].next == graph_.lane_begin[lane + 1]; }

  void count_down(std::int32_t task) {
    if (--remaining_[at(task)] == 0) ready_.push_back(task);
  }

  void arrive(std::size_t lane) {
    if (!is_done(lane)) count_down(graph_.lane_tasks[at(lanes_[lane].next)]);
  }

  /// Begins everything that can begin now, then sets the rates of the work in flight.
  void begin_ready() {
    // In any order: tasks of no time end at once and ready others; rates are set afterwards.
    while (!ready_.empty()) {
      const std::int32_t task = ready_.back();
      ready_.pop_back();
      begin(task);
    }
    for (const std::int32_t lane : changed_) set_rate(at(lane));
    changed_.clear();
  }

  void begin(std::int32_t task) {
    times_.begins[at(task)] = now_;
    const Nanoseconds duration = graph_.durations[at(task)];
    if (duration == 0) return finish(task);
    for (const std::int32_t lane : lanes_of_.of(task)) set_busy(at(lane), true);
    if (duration < 0) {
      const Nanoseconds end = transfers_.enter(task, 0, now_);
      if (end != kNotFinished) ends_.push({end, task});
    } else if (graph_.lane_counts[at(task)] > 1) {
      ends_.push({now_ + duration, task});
    } else {
      const std::int32_t index = lanes_of_.of(task).front();
      Lane& lane = lanes_[at(index)];
      lane.has_work = true;
      lane.left = static_cast<double>(duration);
      lane.stretch = 0;
      lane.since = now_;
      changed_.push_back(index);
    }
  }

  void set_busy(std::size_t index, bool is_busy) {
    lanes_[index].is_busy = is_busy;
    for (const std::int32_t slowed : slowed_by_.of(static_cast<std::int32_t>(index)))
      changed_.push_back(slowed);
  }

  double stretch_of(std::size_t lane) const {
    if (graph_.interference.empty()) return 1;
    const auto& [by, factor] = graph_.interference[lane];
    return by != kNone && lanes_[at(by)].is_busy ? 1 + factor : 1;
  }

  void set_rate(std::size_t index) {
    Lane& lane = lanes_[index];
    const double stretch = stretch_of(index);
    // An unchanged rate keeps its end: nothing is rounded twice.
    if (!lane.has_work || stretch == lane.stretch) return;
    if (lane.stretch > 0)
      lane.left = std::max(
          0.0, lane.left - work_between(stretches_of(index), lane.since, now_) / lane.stretch);
    lane.since = now_;
    lane.stretch = stretch;
    lane.end = end_when_stretched(stretches_of(index), now_, lane.left * stretch);
    // The old end stays in the heap; it is stale because it is no longer the lane's.
    ends_.push({lane.end, graph_.lane_tasks[at(lane.next)]});
  }

  const std::vector<Stretch>& stretches_of(std::size_t lane) const {
    return options_.stretches.empty() ? no_stretches_ : options_.stretches[lane];
  }

  /// Advances to the next event; false: there is none.
  bool go_on() {
    while (!ends_.empty() && is_stale(ends_.top())) ends_.pop();
    const Nanoseconds next_flow = transfers_.next_time();
    if (ends_.empty() && next_flow == FlowNetwork::kNever) return false;
    // At the same time tasks end first: transfers that begin then share what is left.
    if (ends_.empty() || next_flow < ends_.top().at) {
      now_ = next_flow;
      finished_.clear();
      transfers_.advance(finished_);
      for (const auto& [task, end] : finished_) ends_.push({end, task});
      return true;
    }
    now_ = ends_.top().at;
    while (!ends_.empty() && ends_.top().at == now_) {
      const End end = ends_.top();
      ends_.pop();
      if (!is_stale(end)) finish(end.task);
    }
    return true;
  }

  /// Returns whether the rate has changed since, or the task has ended.
  bool is_stale(const End& end) const {
    if (times_.ends[at(end.task)] != kNotFinished) return true;
    const Lane& lane = lanes_[at(lanes_of_.of(end.task).front())];
    return lane.has_work && lane.end != end.at;
  }

  void finish(std::int32_t task) {
    times_.ends[at(task)] = now_;
    times_.end = std::max(times_.end, now_);
    for (const std::int32_t index : lanes_of_.of(task)) {
      Lane& lane = lanes_[at(index)];
      if (lane.is_busy) set_busy(at(index), false);
      lane.has_work = false;
      ++lane.next;
      arrive(at(index));
    }
    for (const std::int32_t waiting : waiting_for_.of(task)) count_down(waiting);
  }

  Deadlock deadlock_at(std::size_t lane) const {
    StoppedRun run{graph_, {}, times_.ends};
    for (const Lane& each : lanes_) run.next.push_back(each.next);
    return find_deadlock(run, lane);
  }

  const TaskGraph& graph_;
  const TimesOptions& options_;
  const std::vector<Stretch> no_stretches_;
  TransfersUnderWay transfers_;
  std::vector<std::int32_t> remaining_;  // by task: lanes that have not reached it, dependencies
  Rows lanes_of_;                        // by task
  Rows waiting_for_;                     // by task: tasks
  Rows slowed_by_;                       // by lane: lanes
  std::vector<Lane> lanes_;
  std::vector<std::int32_t> ready_;    // tasks that can begin
  std::vector<std::int32_t> changed_;  // lanes whose rate may have changed
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // some stale
  std::vector<TransfersUnderWay::Finished> finished_;
  Nanoseconds now_;
  TaskTimes times_;
};

}  // namespace

tl::expected<TaskTimes, Deadlock> run_in_order(const TaskGraph& graph,
                                               const TimesOptions& options) {
  return OrderedRun(graph, options).run();
}

}  // namespace motley::simulate
