#include "motley/simulate/task_graph.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/base/check.h"
#include "motley/simulate/index.h"

namespace motley::simulate {
namespace {

/// Sorts pairs (key, value) into rows by key, each in the order of the pairs.
template <typename Pairs>
void fill_rows(const Pairs& pairs, std::size_t keys, std::vector<std::int32_t>& begin,
               std::vector<std::int32_t>& values) {
  begin.assign(keys + 1, 0);
  for (const auto& [key, value] : pairs) ++begin[at(key) + 1];
  for (std::size_t key = 0; key < keys; ++key) begin[key + 1] += begin[key];
  values.resize(pairs.size());
  for (const auto& [key, value] : pairs) values[at(begin[at(key)]++)] = value;
  for (std::size_t key = keys; key > 0; --key) begin[key] = begin[key - 1];
  begin[0] = 0;
}

}  // namespace

LaneId TaskGraphBuilder::add_lane() { return LaneId(lanes_++); }

TaskId TaskGraphBuilder::add_task(LaneId lane, Nanoseconds duration) {
  const TaskId task(static_cast<std::int64_t>(graph_.durations.size()));
  graph_.durations.push_back(duration);
  graph_.lane_counts.push_back(0);
  join(task, lane);
  return task;
}

TaskId TaskGraphBuilder::add(LaneId lane, Nanoseconds duration) {
  MOTLEY_CHECK(duration >= 0);
  return add_task(lane, duration);
}

TaskId TaskGraphBuilder::add(LaneId lane, TransferId transfer) {
  return add_task(lane, transfer_durations_[transfer.index()]);
}

TransferId TaskGraphBuilder::add_transfer(cost::Transfer transfer) {
  const TransferId id(static_cast<std::int64_t>(transfer_durations_.size()));
  Nanoseconds delays = 0;
  bool has_flows = false;
  for (const cost::TransferPhase& phase : transfer.phases) {
    delays += to_nanoseconds(phase.delay);
    has_flows = has_flows || !phase.flows.empty();
  }
  const auto next = static_cast<Nanoseconds>(graph_.transfers.size());
  transfer_durations_.push_back(has_flows ? -1 - next : delays);
  if (has_flows) graph_.transfers.push_back(std::move(transfer));
  return id;
}

void TaskGraphBuilder::set_transfer(TaskId task, TransferId transfer) {
  graph_.durations[task.index()] = transfer_durations_[transfer.index()];
}

void TaskGraphBuilder::join(TaskId task, LaneId lane) {
  MOTLEY_CHECK(!lane.is_none() && lane.value < lanes_);
  seats_.push_back({lane.value, task.value});
  ++graph_.lane_counts[task.index()];
}

void TaskGraphBuilder::depend(TaskId task, TaskId on) {
  MOTLEY_CHECK(task.index() < graph_.tasks() && on.index() < graph_.tasks());
  dependencies_.push_back({task.value, on.value});
}

void TaskGraphBuilder::set_links(std::vector<double> capacities) {
  graph_.capacities = std::move(capacities);
}

void TaskGraphBuilder::slow(LaneId lane, LaneId by, double factor) {
  MOTLEY_CHECK(lane != by && lane.value < lanes_ && by.value < lanes_ && factor >= 0);
  graph_.interference.resize(std::max(graph_.interference.size(), lane.index() + 1));
  graph_.interference[lane.index()] = {by.value, factor};
}

TaskGraph TaskGraphBuilder::build() && {
  if (!graph_.interference.empty()) graph_.interference.resize(at(lanes_));
  fill_rows(seats_, at(lanes_), graph_.lane_begin, graph_.lane_tasks);
  seats_ = {};
  fill_rows(dependencies_, graph_.tasks(), graph_.dependency_begin, graph_.dependencies);
  dependencies_ = {};
  return std::move(graph_);
}

bool has_interference(const TaskGraph& graph) {
  return std::any_of(graph.interference.begin(), graph.interference.end(),
                     [](const TaskGraph::Interference& each) { return each.factor > 0; });
}

Nanoseconds to_nanoseconds(Seconds time) {
  return static_cast<Nanoseconds>(std::llround(time.value * 1e9));
}

namespace {

/// What a copy's first tasks wait for: the last tasks of the device's other lanes before.
struct Boundary {
  std::vector<std::int32_t> begin, on;  // by task
};

Boundary find_boundary(const TaskGraph& graph, std::span<const LaneOwners> owners) {
  std::vector<std::vector<std::size_t>> lanes;  // by unit: its lanes that are not empty
  for (std::size_t lane = 0; lane < graph.lanes(); ++lane) {
    if (graph.tasks_of(lane).empty()) continue;
    for (const std::int32_t unit : {owners[lane].first, owners[lane].second}) {
      if (unit < 0) continue;
      lanes.resize(std::max(lanes.size(), at(unit) + 1));
      lanes[at(unit)].push_back(lane);
    }
  }
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (const auto& of_unit : lanes)
    for (const std::size_t lane : of_unit)
      for (const std::size_t other : of_unit)
        if (lane != other)
          pairs.emplace_back(graph.tasks_of(lane).front(), graph.tasks_of(other).back());
  Boundary boundary;
  fill_rows(pairs, graph.tasks(), boundary.begin, boundary.on);
  return boundary;
}

void append_dependencies(const TaskGraph& graph, const Boundary& boundary, std::int32_t copy,
                         TaskGraph& result) {
  const auto tasks = static_cast<std::int32_t>(graph.tasks());
  for (std::size_t task = 0; task < graph.tasks(); ++task) {
    for (const std::int32_t on : graph.dependencies_of(task))
      result.dependencies.push_back(copy * tasks + on);
    if (copy > 0)
      for (std::int32_t i = boundary.begin[task]; i < boundary.begin[task + 1]; ++i)
        result.dependencies.push_back((copy - 1) * tasks + boundary.on[at(i)]);
    result.dependency_begin.push_back(static_cast<std::int32_t>(result.dependencies.size()));
  }
}

}  // namespace

TaskGraph repeat(const TaskGraph& graph, int times, std::span<const LaneOwners> owners) {
  const auto copies = static_cast<std::size_t>(times), tasks = graph.tasks();
  MOTLEY_CHECK(times >= 0 && tasks * copies <= INT32_MAX);
  const Boundary boundary = find_boundary(graph, owners);
  TaskGraph result;
  result.transfers = graph.transfers;
  result.capacities = graph.capacities;
  result.interference = graph.interference;
  result.durations.reserve(tasks * copies);
  result.lane_counts.reserve(tasks * copies);
  result.dependency_begin.reserve(tasks * copies + 1);
  result.dependencies.reserve((graph.dependencies.size() + boundary.on.size()) * copies);
  result.dependency_begin.push_back(0);
  for (std::int32_t copy = 0; copy < times; ++copy) {
    result.durations.insert(result.durations.end(), graph.durations.begin(), graph.durations.end());
    result.lane_counts.insert(result.lane_counts.end(), graph.lane_counts.begin(),
                              graph.lane_counts.end());
    append_dependencies(graph, boundary, copy, result);
  }
  result.lane_tasks.reserve(graph.lane_tasks.size() * copies);
  result.lane_begin.push_back(0);
  for (std::size_t lane = 0; lane < graph.lanes(); ++lane) {
    for (std::int32_t copy = 0; copy < times; ++copy)
      for (const std::int32_t task : graph.tasks_of(lane))
        result.lane_tasks.push_back(copy * static_cast<std::int32_t>(tasks) + task);
    result.lane_begin.push_back(static_cast<std::int32_t>(result.lane_tasks.size()));
  }
  return result;
}

}  // namespace motley::simulate
