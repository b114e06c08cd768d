#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/simulate/find_times.h"
#include "motley/simulate/simulate.h"

namespace motley::simulate {

/// One step of a program as a task graph: lane 2 r is the compute lane of rank r, lane 2 r + 1 its
/// transfer lane, which slows it as the cost model says; after those there is a lane for each
/// ordered pair of ranks of which the one sends to the other. A compute instruction is a task; a
/// collective is one task in a lane of each member; a send and its receive are one task in the lane
/// of their pair, which begins when what either waits for is over. Tasks are numbered by rank, then
/// instruction, those of several ranks at the first one.
struct ProgramTasks {
  TaskGraph graph;
  struct Pair {
    Rank source, target;
    auto operator<=>(const Pair&) const = default;
  };
  std::vector<Pair> pairs;                  ///< ascending; that of lane 2 * ranks + p is pairs[p]
  std::vector<std::vector<TaskId>> tasks;   ///< by rank and instruction
  std::vector<std::vector<Bytes>> scratch;  ///< by rank, as the cost model says
  double most_ns = 0;                       ///< no step takes longer, however transfers share links
};

/// Prices a program and lays it out. The n-th collective of a group on one member is the n-th on
/// all; the n-th send from one rank to another is its n-th receive. An exchange has flows only
/// where some of its links is used by one that can be under way at the same time, which is one
/// without a lane in common; else it takes as long as alone, as all do of a program with one group
/// and no sends. `program` verifies, save that partners may be missing, which is a deadlock.
/// Where devices stand for others, an exchange among such takes of each link what those of all do.
/// Errors: of the cost model; a time, a flow or a link that is not possible (code simulate.cost);
/// devices that do not exchange as those that stand for them (simulate.unlike).
Result<ProgramTasks> lay_out_program(const program::Program& program, const cost::CostModel& cost,
                                     const StandIns* stand_ins = nullptr);

/// Compute lane or transfer lane of a rank.
inline LaneId lane_of(std::size_t rank, Lane lane) {
  return LaneId(static_cast<std::int64_t>(2 * rank + static_cast<std::size_t>(lane)));
}

/// Several steps of a program: task t of step k is k * tasks() + t. A device begins a step when it
/// has finished the one before; it may be ahead of others.
TaskGraph repeat_steps(const ProgramTasks& step, int steps);
/// Are so many steps, each `factor` times as long at most, few enough to be one graph, and do they
/// take at most 2^60 ns? (usage, code simulate.size)
Result<void> check_steps(const ProgramTasks& step, int steps, double factor = 1);

/// A deadlock of the program's tasks, also of several steps of them, in the program's words (code
/// simulate.deadlock).
Error deadlock_error(const program::Program& program, const ProgramTasks& tasks,
                     const Deadlock& deadlock);

}  // namespace motley::simulate
