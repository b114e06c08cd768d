#pragma once

#include <span>
#include <utility>
#include <vector>

#include "motley/base/units.h"
#include "motley/program/program.h"

namespace motley::program {

/// Peak memory of one step by liveness: persistent buffers, inputs, temporaries from definition to
/// free (a root lives until its last view is freed), and the running instruction's scratch if
/// known, in the order of the compute lane. What is carried is live at both ends of the step. A
/// transfer, send or receive ends at the compute instruction that waits for it, directly or through
/// others; else at the end of the step.
struct MemoryPeak {
  Bytes total;  ///< at the peak; the sum of the following
  Bytes parameters;
  Bytes states;       ///< of the optimizer
  Bytes buffers;      ///< of the model, and constants
  Bytes mirrors;      ///< copies of other devices' parts
  Bytes inputs;       ///< samples
  Bytes gradients;    ///< what pack and update read
  Bytes exchange;     ///< packed gradients; results of transfers and receives; cut parts
  Bytes activations;  ///< all other temporaries
  Bytes scratch;      ///< of the instruction at the peak
  Bytes persistent;   ///< parameters, states, buffers, mirrors: always there
  InstructionId at;   ///< where the peak is
  std::vector<std::pair<BufferId, Bytes>> largest;  ///< live at the peak, largest first, up to 8
};
/// Finds the peak. `scratch`: one entry per instruction, or empty.
MemoryPeak find_memory_peak(const DeviceProgram& program, std::span<const Bytes> scratch = {});

}  // namespace motley::program
