#pragma once

#include <span>
#include <utility>
#include <vector>

#include "motley/base/units.h"
#include "motley/program/program.h"

namespace motley::program {

/// Peak memory of one step by liveness: persistent buffers, inputs, temporaries from definition to
/// free (a root lives until its last view is freed), instruction order of the compute lane with
/// transfers, sends and receives finishing at the instruction that waits for them, by itself or
/// through others; those that none waits for at the end of the step. Where it is known, the scratch
/// memory of the instruction that runs is added.
struct MemoryPeak {
  Bytes total;  ///< at the peak; the sum of the following
  Bytes parameters;
  Bytes states;       ///< of the optimizer
  Bytes buffers;      ///< of the model, and constants
  Bytes mirrors;      ///< copies of what other devices have
  Bytes inputs;       ///< samples
  Bytes gradients;    ///< what pack and update read
  Bytes exchange;     ///< packed gradients; what transfers and receives define; cut parts
  Bytes activations;  ///< all other temporaries
  Bytes scratch;      ///< of the instruction at the peak
  Bytes persistent;   ///< parameters, states, buffers, mirrors: there all the time
  InstructionId at;   ///< where the peak is
  std::vector<std::pair<BufferId, Bytes>> largest;  ///< live at the peak, largest first, up to 8
};
/// `scratch`: by instruction, as long as the program; or empty.
MemoryPeak find_memory_peak(const DeviceProgram& program, std::span<const Bytes> scratch = {});

}  // namespace motley::program
