#pragma once

#include <cstdint>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "motley/simulate/flow_network.h"
#include "motley/simulate/task_graph.h"

namespace motley::simulate {

/// A run's transfers with flows: when their next phases start, and which flows belong to which.
/// Calls must be ordered in time: nothing enters before the time that `advance` has reached. The
/// graph must outlive it. Cost: that of the flow network.
class TransfersUnderWay {
 public:
  static constexpr Nanoseconds kNotFinished = -1;
  /// A transfer without flows left and its end: now, or after a last delay.
  using Finished = std::pair<std::int32_t, Nanoseconds>;

  explicit TransfersUnderWay(const TaskGraph& graph) : graph_(graph), network_(graph.capacities) {}

  /// Enters a phase at `now`. Returns the transfer's end if no flows are left, else kNotFinished.
  Nanoseconds enter(std::int32_t task, std::size_t phase, Nanoseconds now);
  /// Returns when flows start or end next; FlowNetwork::kNever: none is left.
  Nanoseconds next_time();
  /// Advances to that time, ends before starts, ties by task; appends to `finished`.
  void advance(std::vector<Finished>& finished);

 private:
  struct Start {
    Nanoseconds at;
    std::int32_t task;
    std::size_t phase;
    bool operator>(const Start& o) const { return std::tie(at, task) > std::tie(o.at, o.task); }
  };
  /// A phase whose flows are in flight.
  struct Owner {
    std::int32_t task;
    std::size_t phase, flows;
  };

  const std::vector<cost::TransferPhase>& phases_of(std::int32_t task) const;
  void start_next();

  const TaskGraph& graph_;
  FlowNetwork network_;
  std::priority_queue<Start, std::vector<Start>, std::greater<>> starts_;
  std::vector<Owner> owners_;
  std::vector<std::int32_t> free_owners_;
  std::vector<std::int32_t> flow_owner_;  // by number of flow
  std::vector<std::int32_t> ended_;
};

}  // namespace motley::simulate
