#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/cost/cost_model.h"
#include "motley/program/program.h"
#include "motley/trace/trace.h"

namespace motley::simulate {

struct SimulateOptions {
  int steps = 1;  ///< steps to simulate; a device starts step k+1 when it has finished step k
  /// Of memory, by rank, for the trace's marks; empty: those of its programs are found.
  std::vector<Bytes> peaks = {};
};

/// Runs a verified program on a clock instead of on devices. Each lane, of the peer lane each
/// strand (program/strands.h), executes its instructions in order; an instruction starts when its
/// strand is free and all it waits for has finished, a send together with its receive; a collective
/// starts when its instruction has been reached on every member and then takes
/// CostModel::collective_time on all of them. Time is integer nanoseconds, ties break by rank,
/// lane, instruction. Linear in instructions. A deadlock is an error that says who waits for whom.
Result<trace::Trace> simulate(const program::Program& program, const cost::CostModel& cost,
                              const SimulateOptions& options = {});

}  // namespace motley::simulate
