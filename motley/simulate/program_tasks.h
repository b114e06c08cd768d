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

/// One step of a program as a task graph. Lane 2 r is the compute lane of rank r; lane 2 r + 1 is
/// its transfer lane, which slows it as the cost model tells. A lane for each ordered pair of
/// sender and receiver follows. A compute instruction is a task, a collective one task in a lane of
/// each member, a send with its receive one task in their pair's lane, begun when both are ready.
/// Tasks are numbered by rank, then instruction; shared ones at the first rank.
struct ProgramTasks {
  TaskGraph graph;
  struct Pair {
    Rank source, target;
    auto operator<=>(const Pair&) const = default;
  };
  std::vector<Pair> pairs;                  ///< ascending; lane 2 * ranks + p is that of pairs[p]
  std::vector<std::vector<TaskId>> tasks;   ///< by rank and instruction
  std::vector<std::vector<Bytes>> scratch;  ///< by rank, from the cost model
  double most_ns = 0;  ///< bound of a step's time, however transfers share links
};

/// Prices a program and lays it out. The n-th collective of a group on one member is the n-th on
/// all; the n-th send between two ranks is the n-th receive. An exchange has flows only where
/// another exchange without a common lane uses one of its links; else it takes its isolated time,
/// as all do in a program with one group and no sends. `program` must verify, except that partners
/// may be missing, which is a deadlock. Where devices stand for others, an exchange loads each link
/// for all of them.
/// Errors: of the cost model; an impossible time, flow or link (code simulate.cost); devices that
/// exchange differently than their stand-ins (simulate.unlike).
Result<ProgramTasks> lay_out_program(const program::Program& program, const cost::CostModel& cost,
                                     const StandIns* stand_ins = nullptr);

inline LaneId lane_of(std::size_t rank, Lane lane) {
  return LaneId(static_cast<std::int64_t>(2 * rank + static_cast<std::size_t>(lane)));
}

/// Repeats a program's step: task t of step k is k * tasks() + t. A device begins a step when it
/// has finished the one before; it may be ahead of others.
TaskGraph repeat_steps(const ProgramTasks& step, int steps);
/// Checks that steps, each at most `factor` as long, fit in a graph and 2^60 ns (simulate.size).
Result<void> check_steps(const ProgramTasks& step, int steps, double factor = 1);

/// Describes a deadlock of one or several steps, in the program's names (simulate.deadlock).
Error deadlock_error(const program::Program& program, const ProgramTasks& tasks,
                     const Deadlock& deadlock);

}  // namespace motley::simulate
