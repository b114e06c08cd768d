#pragma once

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::simulate {

/// The devices that a program's devices stand for (synth::lower_stage_kinds) and exchange beside.
struct StandIns {
  std::vector<std::string> devices;                 ///< all of them
  std::vector<std::vector<std::string>> identical;  ///< by rank: those it stands for, itself first
  std::vector<std::vector<std::string>> groups;     ///< by group: all its devices
};

struct SimulateOptions {
  int steps = 1;  ///< steps to simulate; a device starts step k+1 after its own step k
  /// Memory peaks by rank, for the trace's marks; empty: found from the programs.
  std::vector<Bytes> peaks = {};
  const StandIns* stand_ins = nullptr;  ///< null: the program has all devices
};

/// Runs a verified program on a simulated clock. Each lane, or in the peer lane each strand
/// (program/strands.h), executes its instructions in order. An instruction starts when its strand
/// is free and all it waits for has finished; a send starts with its receive. A collective starts
/// when every member has reached it and takes CostModel::collective_time on all. Time is integer
/// nanoseconds; ties break by rank, lane, instruction. Linear in instructions. Errors: a deadlock,
/// with its chain of waits; devices that exchange differently than their stand-ins
/// (simulate.unlike).
Result<trace::Trace> simulate(const program::Program& program, const cost::CostModel& cost,
                              const SimulateOptions& options = {});

}  // namespace motley::simulate
