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

/// Returns the work of every instruction of a program lowered from `graph`, in order. Those with an
/// origin have its work on the program's shapes (graph/work.h). Others (pack, update, ...) read
/// their arguments and write their results, or else their arguments. Copies of boxes count only the
/// boxes. An update does about one operation per byte read.
std::vector<OperatorWork> instruction_work(const program::DeviceProgram& program,
                                           const graph::Graph& graph);

}  // namespace motley::cost
