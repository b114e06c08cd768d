#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::simulate {

/// What devices of a program stand for that are others like them (synth::lower_stage_kinds): what
/// they exchange takes what it takes beside that of the others.
struct StandIns {
  std::vector<std::string> devices;                 ///< all of them
  std::vector<std::vector<std::string>> identical;  ///< by rank: for which it stands, itself first
  std::vector<std::vector<std::string>> groups;     ///< by group: all its devices
};

struct SimulateOptions {
  int steps = 1;  ///< steps to simulate; a device starts step k+1 when it has finished step k
  /// Of memory, by rank, for the trace's marks; empty: those of its programs are found.
  std::vector<Bytes> peaks = {};
  const StandIns* stand_ins = nullptr;  ///< null: the program has all devices
};

/// Runs a verified program on a clock instead of on devices. Each lane, of the peer lane each
/// strand (program/strands.h), executes its instructions in order; an instruction starts when its
/// strand is free and all it waits for has finished, a send together with its receive; a collective
/// starts when its instruction has been reached on every member and then takes
/// CostModel::collective_time on all of them. Time is integer nanoseconds, ties break by rank,
/// lane, instruction. Linear in instructions. A deadlock is an error that says who waits for whom,
/// and so it is (code simulate.unlike) where devices do not exchange as those do that stand for
/// them.
Result<trace::Trace> simulate(const program::Program& program, const cost::CostModel& cost,
                              const SimulateOptions& options = {});

}  // namespace motley::simulate
