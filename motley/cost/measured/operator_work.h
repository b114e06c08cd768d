#pragma once

#include <vector>

#include "motley/graph/graph.h"
#include "motley/program/program.h"

namespace motley::cost {

/// What an instruction asks of a device, whatever the device.
struct OperatorWork {
  double flops = 0;  ///< multiply and add count as two
  double bytes = 0;  ///< read and written, each tensor once
  int launches = 0;  ///< kernels started: 1, or 0 for a view or a transfer
  bool operator==(const OperatorWork&) const = default;
};

/// Work of every instruction of a program that was lowered from `graph`, in order. Instructions
/// that come from an operator of the graph have that operator's work on tensors of the program's
/// shapes (graph/work.h); those that lowering adds (pack, update, ...) read their arguments and
/// write their results, or their arguments where they have none; copies of boxes read and write
/// these alone. An update does about an operation for every byte it reads.
std::vector<OperatorWork> instruction_work(const program::DeviceProgram& program,
                                           const graph::Graph& graph);

}  // namespace motley::cost
