#include "motley/simulate/resimulation.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "motley/base/check.h"
#include "motley/simulate/index.h"

namespace motley::simulate {
namespace {

/// Returns a place for a new item: a freed one, or a new one.
template <typename Item>
std::int32_t take_place(std::vector<Item>& items, std::vector<std::int32_t>& free) {
  if (free.empty()) {
    items.emplace_back();
    return static_cast<std::int32_t>(items.size()) - 1;
  }
  const std::int32_t place = free.back();
  free.pop_back();
  items[at(place)] = {};
  return place;
}

}  // namespace

template <typename Visit>
void Resimulation::for_each_before(std::int32_t task, const Visit& visit) const {
  for (std::int32_t s = tasks_[at(task)].seats; s != kNone; s = seats_[at(s)].next)
    if (const std::int32_t before = seats_[at(s)].before; before != kNone)
      visit(seats_[at(before)].task);
  for (std::int32_t d = tasks_[at(task)].waits; d != kNone; d = dependencies_[at(d)].next_of_task)
    visit(dependencies_[at(d)].on);
}

template <typename Visit>
void Resimulation::for_each_after(std::int32_t task, const Visit& visit) const {
  for (std::int32_t s = tasks_[at(task)].seats; s != kNone; s = seats_[at(s)].next)
    if (const std::int32_t after = seats_[at(s)].after; after != kNone)
      visit(seats_[at(after)].task);
  for (std::int32_t d = tasks_[at(task)].waited_for; d != kNone;
       d = dependencies_[at(d)].next_of_on)
    visit(dependencies_[at(d)].task);
}

tl::expected<Resimulation, Deadlock> Resimulation::start(const TaskGraph& graph) {
  auto times = find_times(graph);
  if (!times) return tl::unexpected(std::move(times).error());
  Resimulation made;
  made.tasks_.resize(graph.tasks());
  made.lanes_.resize(graph.lanes());
  made.transfers_ = graph.transfers;
  made.capacities_ = graph.capacities;
  if (has_interference(graph)) made.interference_ = graph.interference;
  for (std::size_t t = 0; t < graph.tasks(); ++t) {
    made.tasks_[t].duration = graph.durations[t];
    made.tasks_[t].begin = times->begins[t];
    made.tasks_[t].end = times->ends[t];
  }
  made.seats_.reserve(graph.lane_tasks.size());
  for (std::size_t lane = 0; lane < graph.lanes(); ++lane)
    for (const std::int32_t task : graph.tasks_of(lane))
      made.add_seat(task, static_cast<std::int32_t>(lane), kNone);
  for (std::size_t t = 0; t < graph.tasks(); ++t)
    for (const std::int32_t on : graph.dependencies_of(t))
      made.depend(TaskId(static_cast<std::int64_t>(t)), TaskId(on));
  made.edges_.clear();
  for (std::size_t t = 0; t < graph.tasks(); ++t)
    if (graph.lane_counts[t] == 0) made.free_tasks_.push_back(static_cast<std::int32_t>(t));
  made.set_order(*times);
  made.end_ = times->end;
  return made;
}

/// Assigns slots by begin and sorts ties by their edges. Every other slot stays free.
void Resimulation::set_order(const TaskTimes& times) {
  std::vector<std::int32_t> order;
  for (std::size_t t = 0; t < tasks_.size(); ++t)
    if (tasks_[t].seats != kNone) order.push_back(static_cast<std::int32_t>(t));
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return times.begins[at(a)] < times.begins[at(b)];
  });
  task_at_.assign(2 * order.size(), kNone);
  marks_.assign(task_at_.size() / 64 + 1, 0);
  marked_ = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    tasks_[at(order[i])].slot = static_cast<std::int32_t>(2 * i);
    task_at_[2 * i] = order[i];
  }
  for (const std::int32_t task : order)
    for_each_before(task, [&](std::int32_t before) { check_order(before, task); });
  const bool has_order = sort_stretches();
  MOTLEY_CHECK(has_order);
}

/// Puts a new task behind another (none: first), moving tasks up to the next empty slot.
void Resimulation::give_slot(std::int32_t task, std::int32_t after) {
  const std::int32_t slot = after == kNone ? 0 : tasks_[at(after)].slot + 1;
  std::int32_t empty = slot;
  while (at(empty) < task_at_.size() && task_at_[at(empty)] != kNone) ++empty;
  if (at(empty) == task_at_.size()) {
    task_at_.push_back(kNone);
    marks_.resize(task_at_.size() / 64 + 1);
  }
  for (; empty > slot; --empty) {
    const std::int32_t moved = task_at_[at(empty - 1)];
    task_at_[at(empty)] = moved;
    tasks_[at(moved)].slot = empty;
    const std::uint64_t bit = std::uint64_t{1} << (empty - 1) % 64;
    if (marks_[at(empty - 1) / 64] & bit) {
      marks_[at(empty - 1) / 64] ^= bit;
      marks_[at(empty) / 64] |= std::uint64_t{1} << empty % 64;
    }
  }
  task_at_[at(slot)] = task;
  tasks_[at(task)].slot = slot;
}

// ---- edits

void Resimulation::mark(std::int32_t task) {
  const auto slot = at(tasks_[at(task)].slot);
  std::uint64_t& word = marks_[slot / 64];
  const std::uint64_t bit = std::uint64_t{1} << slot % 64;
  marked_ += (word & bit) == 0;
  word |= bit;
}

void Resimulation::check_order(std::int32_t first, std::int32_t then) {
  if (tasks_[at(first)].slot > tasks_[at(then)].slot) edges_.emplace_back(first, then);
}

void Resimulation::add_seat(std::int32_t task, std::int32_t lane, std::int32_t before) {
  const std::int32_t place = take_place(seats_, free_seats_);
  Seat& seat = seats_[at(place)];
  seat.task = task;
  seat.lane = lane;
  seat.after = before;
  seat.before = before == kNone ? lanes_[at(lane)].last : seats_[at(before)].before;
  seat.next = tasks_[at(task)].seats;
  tasks_[at(task)].seats = place;
  (seat.before == kNone ? lanes_[at(lane)].first : seats_[at(seat.before)].after) = place;
  (seat.after == kNone ? lanes_[at(lane)].last : seats_[at(seat.after)].before) = place;
}

void Resimulation::drop_seat(std::int32_t place) {
  const Seat& seat = seats_[at(place)];
  Lane& lane = lanes_[at(seat.lane)];
  (seat.before == kNone ? lane.first : seats_[at(seat.before)].after) = seat.after;
  (seat.after == kNone ? lane.last : seats_[at(seat.after)].before) = seat.before;
  if (seat.after != kNone) mark(seats_[at(seat.after)].task);
  if (seat.after != kNone && seat.before != kNone)
    edges_.emplace_back(seats_[at(seat.before)].task, seats_[at(seat.after)].task);
  std::int32_t* link = &tasks_[at(seat.task)].seats;
  while (*link != place) link = &seats_[at(*link)].next;
  *link = seat.next;
  free_seats_.push_back(place);
}

std::int32_t Resimulation::seat_in(std::int32_t task, std::int32_t lane) const {
  std::int32_t seat = tasks_[at(task)].seats;
  while (seat != kNone && seats_[at(seat)].lane != lane) seat = seats_[at(seat)].next;
  return seat;
}

void Resimulation::set_duration(TaskId task, Nanoseconds duration) {
  MOTLEY_CHECK(duration >= 0 && tasks_[task.index()].duration >= 0);
  tasks_[task.index()].duration = duration;
  mark(task.value);
}

void Resimulation::join(TaskId task, LaneId lane, TaskId before) {
  MOTLEY_CHECK(seat_in(task.value, lane.value) == kNone);
  const std::int32_t next = before.is_none() ? kNone : seat_in(before.value, lane.value);
  MOTLEY_CHECK(before.is_none() || next != kNone);
  add_seat(task.value, lane.value, next);
  mark(task.value);
  if (next != kNone) mark(before.value);
  const Seat& seat = seats_[at(tasks_[task.index()].seats)];
  if (seat.before != kNone) edges_.emplace_back(seats_[at(seat.before)].task, task.value);
  if (seat.after != kNone) edges_.emplace_back(task.value, seats_[at(seat.after)].task);
}

void Resimulation::move(TaskId task, LaneId from, LaneId to, TaskId before) {
  const std::int32_t seat = seat_in(task.value, from.value);
  MOTLEY_CHECK(seat != kNone && task != before);
  drop_seat(seat);
  join(task, to, before);
}

TaskId Resimulation::insert(LaneId lane, TaskId before, Nanoseconds duration) {
  MOTLEY_CHECK(duration >= 0);
  const std::int32_t task = take_place(tasks_, free_tasks_);
  tasks_[at(task)].duration = duration;
  tasks_[at(task)].begin = INT64_MAX;  // not yet
  const std::int32_t next = before.is_none() ? kNone : seat_in(before.value, lane.value);
  const std::int32_t previous = next == kNone ? lanes_[lane.index()].last : seats_[at(next)].before;
  give_slot(task, previous == kNone ? kNone : seats_[at(previous)].task);
  join(TaskId(task), lane, before);
  return TaskId(task);
}

void Resimulation::depend(TaskId task, TaskId on) {
  const std::int32_t place = take_place(dependencies_, free_dependencies_);
  dependencies_[at(place)] = {task.value, on.value, tasks_[task.index()].waits,
                              tasks_[on.index()].waited_for};
  tasks_[task.index()].waits = place;
  tasks_[on.index()].waited_for = place;
  if (tasks_[task.index()].slot == kNone) return;  // while the graph is set up
  mark(task.value);
  edges_.emplace_back(on.value, task.value);
}

void Resimulation::unlink_dependency(std::int32_t place) {
  const Dependency& gone = dependencies_[at(place)];
  std::int32_t* link = &tasks_[at(gone.task)].waits;
  while (*link != place) link = &dependencies_[at(*link)].next_of_task;
  *link = gone.next_of_task;
  link = &tasks_[at(gone.on)].waited_for;
  while (*link != place) link = &dependencies_[at(*link)].next_of_on;
  *link = gone.next_of_on;
  mark(gone.task);
  free_dependencies_.push_back(place);
}

void Resimulation::release(TaskId task, TaskId on) {
  std::int32_t place = tasks_[task.index()].waits;
  while (place != kNone && dependencies_[at(place)].on != on.value)
    place = dependencies_[at(place)].next_of_task;
  MOTLEY_CHECK(place != kNone);
  unlink_dependency(place);
}

void Resimulation::remove(TaskId id) {
  Task& task = tasks_[id.index()];
  if (task.duration < 0) dropped_flows_ = std::min(dropped_flows_, task.begin);
  while (task.waits != kNone) unlink_dependency(task.waits);
  while (task.waited_for != kNone) unlink_dependency(task.waited_for);
  while (task.seats != kNone) drop_seat(task.seats);
  std::uint64_t& word = marks_[at(task.slot) / 64];
  const std::uint64_t bit = std::uint64_t{1} << task.slot % 64;
  marked_ -= (word & bit) != 0;
  word &= ~bit;
  task_at_[at(task.slot)] = kNone;
  task.slot = kNone;
  free_tasks_.push_back(id.value);
}

// ---- update

/// Sorts the ranges of the order that new edges contradict; false if they close a cycle.
bool Resimulation::sort_stretches() {
  std::vector<std::pair<std::int32_t, std::int32_t>> stretches;
  for (const auto& [first, then] : edges_) {
    const std::int32_t high = tasks_[at(first)].slot, low = tasks_[at(then)].slot;
    if (high != kNone && low != kNone && high >= low) stretches.emplace_back(low, high);
  }
  std::sort(stretches.begin(), stretches.end());
  for (std::size_t i = 0; i < stretches.size();) {
    auto [low, high] = stretches[i];
    for (++i; i < stretches.size() && stretches[i].first <= high; ++i)
      high = std::max(high, stretches[i].second);
    if (!sort_stretch(low, high)) return false;
  }
  edges_.clear();
  return true;
}

/// Sorts depth first, from each task to its predecessors in the range, in the present order, so
/// that few tasks move. A task met again while its predecessors are visited is on a cycle.
bool Resimulation::sort_stretch(std::int32_t low, std::int32_t high) {
  visits_ += 2;
  const std::int64_t open = visits_ - 1, done = visits_;
  sorted_.clear();
  slots_.clear();
  for (std::int32_t slot = low; slot <= high; ++slot) {
    if (task_at_[at(slot)] == kNone) continue;
    slots_.push_back(slot);
    stack_.assign(1, task_at_[at(slot)]);
    while (!stack_.empty()) {
      const std::int32_t task = stack_.back();
      std::int64_t& visit = tasks_[at(task)].visit;
      if (visit >= open) {
        stack_.pop_back();
        if (visit == open) sorted_.push_back(task);
        visit = done;
        continue;
      }
      visit = open;
      bool has_cycle = false;
      for_each_before(task, [&](std::int32_t before) {
        const Task& earlier = tasks_[at(before)];
        has_cycle = has_cycle || earlier.visit == open;
        if (earlier.visit < open && earlier.slot >= low) stack_.push_back(before);
      });
      if (has_cycle) return false;
    }
  }
  if (sorted_.size() != slots_.size()) return false;
  std::vector<std::int32_t> marked;
  for (const std::int32_t task : sorted_) {
    const auto slot = at(tasks_[at(task)].slot);
    const std::uint64_t bit = std::uint64_t{1} << slot % 64;
    if ((marks_[slot / 64] & bit) == 0) continue;
    marks_[slot / 64] ^= bit;
    --marked_;
    marked.push_back(task);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    tasks_[at(sorted_[i])].slot = slots_[i];
    task_at_[at(slots_[i])] = sorted_[i];
  }
  for (const std::int32_t task : marked) mark(task);
  return true;
}

void Resimulation::look_at(std::int32_t id) {
  Task& task = tasks_[at(id)];
  Nanoseconds begin = 0;
  for_each_before(id,
                  [&](std::int32_t before) { begin = std::max(begin, tasks_[at(before)].end); });
  const Nanoseconds end = begin + task.duration;
  task.begin = begin;
  if (end == task.end) return;
  task.end = end;
  for_each_after(id, [&](std::int32_t after) { mark(after); });
}

void Resimulation::propagate() {
  looked_at_ = 0;
  for (std::size_t word = 0; marked_ > 0; ++word)
    while (marks_[word] != 0) {
      const auto slot = 64 * word + static_cast<std::size_t>(std::countr_zero(marks_[word]));
      marks_[word] &= marks_[word] - 1;
      --marked_;
      ++looked_at_;
      look_at(task_at_[slot]);
    }
}

/// Returns the earliest change: an edited task's old begin, or its unedited predecessors' end.
Nanoseconds Resimulation::first_effect() const {
  Nanoseconds first = dropped_flows_;
  const auto is_marked = [&](std::int32_t task) {
    const auto slot = at(tasks_[at(task)].slot);
    return (marks_[slot / 64] >> slot % 64 & 1) != 0;
  };
  for (const std::int32_t task : task_at_) {
    if (task == kNone || !is_marked(task)) continue;
    Nanoseconds ready = 0;
    for_each_before(task, [&](std::int32_t before) {
      if (!is_marked(before)) ready = std::max(ready, tasks_[at(before)].end);
    });
    first = std::min({first, ready, tasks_[at(task)].begin});
  }
  return first;
}

Nanoseconds Resimulation::last_without_flows(Nanoseconds until) const {
  std::vector<std::pair<Nanoseconds, Nanoseconds>> flows;  // end, begin
  for (const Task& task : tasks_)
    if (task.duration < 0 && task.begin < until && task.end > task.begin)
      flows.emplace_back(task.end, task.begin);
  std::sort(flows.rbegin(), flows.rend());
  for (const auto& [end, begin] : flows)
    if (begin < until && end > until) until = begin;
  return until;
}

tl::expected<void, Deadlock> Resimulation::run_again() {
  TaskTimes before;
  for (const Task& task : tasks_) {
    before.begins.push_back(task.begin);
    before.ends.push_back(task.begin == INT64_MAX ? -1 : task.end);
  }
  const Nanoseconds holds_until = interference_.empty() ? last_without_flows(first_effect()) : 0;
  auto times = find_times(graph(), {.before = &before, .holds_until = holds_until});
  if (!times) return tl::unexpected(std::move(times).error());
  looked_at_ = 0;
  for (std::size_t t = 0; t < tasks_.size(); ++t) {
    tasks_[t].begin = times->begins[t];
    tasks_[t].end = times->ends[t];
    const bool was_kept = times->begins[t] < holds_until && times->ends[t] <= holds_until;
    looked_at_ += tasks_[t].slot != kNone && !was_kept ? 1 : 0;
  }
  edges_.clear();
  std::fill(marks_.begin(), marks_.end(), 0);
  marked_ = 0;
  dropped_flows_ = INT64_MAX;
  end_ = times->end;
  return {};
}

tl::expected<void, Deadlock> Resimulation::update() {
  if (!transfers_.empty() || !interference_.empty()) return run_again();
  if (!sort_stretches()) {
    auto deadlock = find_times(graph());
    MOTLEY_CHECK(!deadlock);
    return tl::unexpected(std::move(deadlock).error());
  }
  propagate();
  end_ = 0;
  for (const Lane& lane : lanes_)
    if (lane.last != kNone) end_ = std::max(end_, tasks_[at(seats_[at(lane.last)].task)].end);
  return {};
}

TaskGraph Resimulation::graph() const {
  TaskGraph graph;
  graph.transfers = transfers_;
  graph.capacities = capacities_;
  graph.interference = interference_;
  graph.dependency_begin.push_back(0);
  graph.lane_begin.push_back(0);
  graph.lane_counts.assign(tasks_.size(), 0);
  for (const Task& task : tasks_) {
    graph.durations.push_back(task.duration);
    for (std::int32_t d = task.waits; d != kNone; d = dependencies_[at(d)].next_of_task)
      graph.dependencies.push_back(dependencies_[at(d)].on);
    graph.dependency_begin.push_back(static_cast<std::int32_t>(graph.dependencies.size()));
  }
  for (const Lane& lane : lanes_) {
    for (std::int32_t s = lane.first; s != kNone; s = seats_[at(s)].after) {
      graph.lane_tasks.push_back(seats_[at(s)].task);
      ++graph.lane_counts[at(seats_[at(s)].task)];
    }
    graph.lane_begin.push_back(static_cast<std::int32_t>(graph.lane_tasks.size()));
  }
  return graph;
}

}  // namespace motley::simulate
