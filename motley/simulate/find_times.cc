#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>

#include "motley/simulate/flow_network.h"
#include "motley/simulate/task_graph.h"

namespace motley::simulate {
namespace {

constexpr Nanoseconds kNotFinished = -1;
constexpr std::int32_t kNone = -1;

std::size_t at(std::int32_t index) { return static_cast<std::size_t>(index); }

/// When work of `duration` at factor 1 is done that begins at `begin`.
Nanoseconds end_at_pace(const std::vector<Pace>& pace, Nanoseconds begin, Nanoseconds duration) {
  auto next =
      std::upper_bound(pace.begin(), pace.end(), begin,
                       [](Nanoseconds time, const Pace& piece) { return time < piece.from; });
  double factor = next == pace.begin() ? 1 : std::prev(next)->factor;
  auto left = static_cast<double>(duration);
  Nanoseconds now = begin;
  for (; next != pace.end(); ++next) {
    const double done = static_cast<double>(next->from - now) / factor;
    if (done >= left) break;
    left -= done;
    now = next->from;
    factor = next->factor;
  }
  return now + std::llround(left * factor);
}

/// A phase of a transfer with its flows under way, or about to start them.
struct Start {
  Nanoseconds at;
  std::int32_t task;
  std::size_t phase;
  bool operator>(const Start& o) const { return std::tie(at, task) > std::tie(o.at, o.task); }
};

/// The state of the transfers: which phases are to start when, and which flows are whose.
class TransfersUnderWay {
 public:
  explicit TransfersUnderWay(const TaskGraph& graph) : graph_(graph), network_(graph.capacities) {}

  /// A transfer reaches a phase: gives the end of the transfer if no flows are left in it.
  Nanoseconds enter(std::int32_t task, std::size_t phase, Nanoseconds now) {
    const std::vector<cost::Phase>& phases = phases_of(task);
    for (; phase < phases.size(); ++phase) {
      now += delay_of(phases[phase]);
      if (phases[phase].flows.empty()) continue;
      starts_.push({now, task, phase});
      return kNotFinished;
    }
    return now;
  }

  bool is_idle() { return starts_.empty() && network_.next_end() == FlowNetwork::kNever; }

  /// Goes to the next time at which something ends or starts. Transfers that end are appended to
  /// `finished` with their ends.
  void advance(std::vector<std::pair<std::int32_t, Nanoseconds>>& finished) {
    const Nanoseconds next_end = network_.next_end();
    if (!starts_.empty() && starts_.top().at < next_end) return start_next();
    ended_.clear();
    network_.end_next(ended_);
    for (const std::int32_t flow : ended_) {
      Owner& owner = owners_[at(flow_owner_[at(flow)])];
      if (--owner.flows > 0) continue;
      free_owners_.push_back(flow_owner_[at(flow)]);
      const auto [task, phase] = std::pair(owner.task, owner.phase);
      if (const Nanoseconds end = enter(task, phase + 1, next_end); end != kNotFinished)
        finished.emplace_back(task, end);
    }
  }

 private:
  struct Owner {
    std::int32_t task;
    std::size_t phase, flows;
  };

  const std::vector<cost::Phase>& phases_of(std::int32_t task) const {
    return graph_.transfers[static_cast<std::size_t>(-1 - graph_.durations[at(task)])].phases;
  }

  void start_next() {
    const Start start = starts_.top();
    starts_.pop();
    const std::vector<cost::Flow>& flows = phases_of(start.task)[start.phase].flows;
    std::int32_t owner = static_cast<std::int32_t>(owners_.size());
    if (free_owners_.empty()) {
      owners_.emplace_back();
    } else {
      owner = free_owners_.back();
      free_owners_.pop_back();
    }
    owners_[at(owner)] = {start.task, start.phase, flows.size()};
    for (const cost::Flow& flow : flows) {
      const std::int32_t number = network_.start(start.at, flow);
      flow_owner_.resize(std::max(flow_owner_.size(), at(number) + 1));
      flow_owner_[at(number)] = owner;
    }
  }

  const TaskGraph& graph_;
  FlowNetwork network_;
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
  std::vector<Owner> owners_;
  std::vector<std::int32_t> free_owners_;
  std::vector<std::int32_t> flow_owner_;  // by number of flow
  std::vector<std::int32_t> ended_;
};

/// Walks every lane as far as it goes, and on from where it had to wait when that is there.
class Walk {
 public:
  Walk(const TaskGraph& graph, const RunOptions& options)
      : graph_(graph),
        options_(options),
        remaining_(graph.lane_counts),
        waiter_(graph.tasks(), kNone),
        lanes_(graph.lanes()) {
    times_.begins.assign(graph.tasks(), options.start);
    times_.ends.assign(graph.tasks(), kNotFinished);
    times_.end = options.start;
  }

  tl::expected<Times, Deadlock> run() {
    for (std::size_t lane = lanes_.size(); lane-- > 0;) {
      lanes_[lane].next = graph_.lane_begin[lane];
      lanes_[lane].free_at = options_.start;
      if (options_.before) take_over(lane);
      ready_.push_back(static_cast<std::int32_t>(lane));
    }
    walk_ready();
    if (!graph_.transfers.empty()) run_transfers();
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (!is_done(lane)) return tl::unexpected(find_deadlock(lane));
      times_.end = std::max(times_.end, lanes_[lane].free_at);
    }
    return std::move(times_);
  }

 private:
  struct Lane {
    std::int32_t next = 0;  // into lane_tasks
    std::int32_t next_waiter = kNone;
    bool has_arrived = false;  // at its next task, which it shares with other lanes or waits for
    Nanoseconds free_at = 0;
  };

  /// Lanes begin behind what holds from the run before.
  void take_over(std::size_t index) {
    Lane& lane = lanes_[index];
    for (; !is_done(index); ++lane.next) {
      const auto task = at(head(index));
      const Nanoseconds begin = options_.before->begins[task], end = options_.before->ends[task];
      const bool holds = begin < options_.holds_until && end <= options_.holds_until;
      if (end == kNotFinished || !holds) return;
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
    std::vector<std::pair<std::int32_t, Nanoseconds>> finished;
    while (!under_way.is_idle()) {
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
      if (!lane.has_arrived) {
        begin = std::max(begin, lane.free_at);
        lane.has_arrived = true;
        if (--remaining_[at(task)] > 0) return wait(index, task);
      }
      for (const std::int32_t on : graph_.dependencies_of(at(task))) {
        if (times_.ends[at(on)] == kNotFinished) return wait(index, on);
        begin = std::max(begin, times_.ends[at(on)]);
      }
      const Nanoseconds duration = graph_.durations[at(task)];
      if (duration < 0) {
        wait(index, task);
        return begin_transfer(task);
      }
      const bool is_alone = graph_.lane_counts[at(task)] == 1;
      const bool has_pace = is_alone && !options_.paces.empty();
      lane.free_at =
          has_pace ? end_at_pace(options_.paces[index], begin, duration) : begin + duration;
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
    if (!transfers_) return first_transfers_.push_back(task);
    const Nanoseconds end = transfers_->enter(task, 0, times_.begins[at(task)]);
    if (end != kNotFinished) finish(task, end);
  }

  /// Lets the lanes go on that are in the task or wait for it.
  void finish(std::int32_t task, Nanoseconds end) {
    times_.ends[at(task)] = end;
    std::int32_t index = waiter_[at(task)];
    while (index != kNone) {
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

  // ---- deadlock

  bool has_seat(std::size_t lane, std::int32_t task) const {
    const auto tasks = graph_.tasks_of(lane);
    return std::find(tasks.begin(), tasks.end(), task) != tasks.end();
  }

  /// A lane that must get on before the task at the head of `lane` can begin: one that is in the
  /// task too and has not reached it, else one that runs what the task depends on.
  std::size_t lane_waited_for(std::size_t lane) const {
    const std::int32_t task = head(lane);
    for (std::size_t other = 0; other < lanes_.size(); ++other)
      if (!is_done(other) && head(other) != task && has_seat(other, task)) return other;
    for (const std::int32_t on : graph_.dependencies_of(at(task)))
      for (std::size_t other = 0; other < lanes_.size(); ++other)
        if (times_.ends[at(on)] == kNotFinished && has_seat(other, on)) return other;
    return lane;
  }

  Deadlock find_deadlock(std::size_t lane) const {
    Deadlock deadlock;
    std::vector<bool> seen(lanes_.size());
    while (!seen[lane]) {
      seen[lane] = true;
      deadlock.chain.push_back({LaneId(static_cast<std::int64_t>(lane)), TaskId(head(lane))});
      lane = lane_waited_for(lane);
    }
    deadlock.closes_at = LaneId(static_cast<std::int64_t>(lane));
    return deadlock;
  }

  const TaskGraph& graph_;
  const RunOptions& options_;
  Times times_;
  std::vector<std::int32_t> remaining_;  // by task: lanes that have not reached it
  std::vector<std::int32_t> waiter_;  // by task: a lane in it or waiting for it, then next_waiter
  std::vector<Lane> lanes_;
  std::vector<std::int32_t> ready_;            // lanes that can go on
  std::vector<std::int32_t> first_transfers_;  // reached before any flow has started
  TransfersUnderWay* transfers_ = nullptr;
};

}  // namespace

tl::expected<Times, Deadlock> find_times(const TaskGraph& graph, const RunOptions& options) {
  return Walk(graph, options).run();
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
