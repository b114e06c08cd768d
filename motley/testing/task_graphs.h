#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/random.h"
#include "motley/simulate/task_graph.h"

namespace motley::simulate {

/// Draws graphs without deadlock: tasks are added in an order that respects dependencies. A quarter
/// of tasks have several lanes, a quarter of durations are 0. Same seed, same graph.
inline TaskGraph draw_graph(std::uint64_t seed, std::size_t tasks) {
  SplitMix64 random(seed);
  TaskGraphBuilder builder;
  std::vector<LaneId> lanes;
  for (std::uint64_t i = 1 + random.below(6); i > 0; --i) lanes.push_back(builder.add_lane());
  for (std::size_t t = 0; t < tasks; ++t) {
    const auto duration = static_cast<Nanoseconds>(random.below(4) * random.below(100));
    const std::size_t first = random.below(lanes.size());
    const TaskId task = builder.add(lanes[first], duration);
    if (random.below(4) == 0)
      for (std::size_t lane = 0; lane < lanes.size(); ++lane)
        if (lane != first && random.below(2) == 0) builder.join(task, lanes[lane]);
    for (std::uint64_t i = random.below(3); i > 0 && t > 0; --i)
      builder.depend(task, TaskId(static_cast<std::int64_t>(random.below(t))));
  }
  return std::move(builder).build();
}

/// Makes a third of the tasks transfers: up to two phases of one or two flows over three links.
inline TaskGraph with_transfers(std::uint64_t seed, TaskGraph graph) {
  SplitMix64 random(seed);
  graph.capacities = {1e9, 2e9, 5e8};
  for (Nanoseconds& duration : graph.durations) {
    if (random.below(3) > 0) continue;
    duration = -1 - static_cast<Nanoseconds>(graph.transfers.size());
    cost::Transfer& transfer = graph.transfers.emplace_back();
    for (std::uint64_t phases = 1 + random.below(2); phases > 0; --phases) {
      cost::TransferPhase& phase = transfer.phases.emplace_back();
      phase.delay = Seconds(static_cast<double>(random.below(3)) * 1e-8);
      for (std::uint64_t flows = 1 + random.below(2); flows > 0; --flows)
        phase.flows.push_back({static_cast<double>(random.below(100)),
                               {{static_cast<std::int32_t>(random.below(3)), 1.0}},
                               random.below(2) * 4e8});
    }
  }
  return graph;
}

/// Lets half of the lanes be slowed by another one, by one of `factors`.
inline TaskGraph with_interference(std::uint64_t seed, TaskGraph graph,
                                   const std::vector<double>& factors) {
  SplitMix64 random(seed);
  graph.interference.resize(graph.lanes());
  for (std::size_t lane = 0; lane < graph.lanes(); ++lane) {
    const std::uint64_t by = random.below(graph.lanes());
    const double factor = factors[random.below(factors.size())];
    if (by != lane && random.below(2) == 0)
      graph.interference[lane] = {static_cast<std::int32_t>(by), factor};
  }
  return graph;
}

}  // namespace motley::simulate
