#pragma once

#include <vector>

#include "motley/graph/graph.h"
#include "motley/program/program.h"

namespace motley::cost {

/// The work of an instruction, independent of the device.
struct OperatorWork {
  double flops = 0;  ///< multiply and add count as two
  double bytes = 0;  ///< read and written, each tensor once
  int launches = 0;  ///< kernels started: 1, or 0 for a view or a transfer
  bool operator==(const OperatorWork&) const = default;
};

/// Returns the work of every instruction of a program that was lowered from `graph`, in order.
/// Instructions with an origin have that operator's work on tensors of the program's shapes
/// (graph/work.h). Those that lowering adds (pack, update, ...) read their arguments and write
/// their results, or their arguments if they have none. Copies of boxes read and write only the
/// boxes. An update does about one operation per byte read.
std::vector<OperatorWork> instruction_work(const program::DeviceProgram& program,
                                           const graph::Graph& graph);

}  // namespace motley::cost
