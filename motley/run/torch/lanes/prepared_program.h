#pragma once

#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/program/strands.h"
#include "motley/run/torch/lanes/exchange_lane.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// A prepared instruction of the compute lane.
struct PreparedCompute {
  int id = 0;
  std::vector<StrandWait> waits;
  bool signals = false;     ///< an exchange waits for it
  bool counts = false;      ///< squares of gradients, which a step may skip
  bool is_carried = false;  ///< of the step before
  Kernel kernel;
  std::vector<int> frees;
};

/// A device's instructions as its lanes run them.
struct PreparedProgram {
  std::vector<PreparedCompute> compute;
  std::vector<std::vector<PreparedExchange>> exchanges;  ///< by strand; the compute lane's: none
  std::vector<int> temporaries;                          ///< that no instruction frees
};

/// Looks operators up. `devices`: names by rank, for messages; may be empty. Usage errors
/// `run.missing-operator`, which lists all that do not exist; `run.bad-instruction`; of operators.
Result<PreparedProgram> prepare_program(const program::DeviceProgram& program,
                                        const program::Strands& strands, c10::Device device,
                                        const std::vector<std::string>& devices);

/// Returns "^45 aten::mm (h.0.attn)".
std::string place(const program::Instruction& instruction, std::size_t id);

}  // namespace motley::run
