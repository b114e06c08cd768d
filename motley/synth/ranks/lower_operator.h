#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/program/program.h"

namespace motley::synth {

/// An exchange within an operator.
struct InnerExchange {
  std::string op;  ///< "motley::all_reduce"
  Bytes bytes;     ///< by which it is priced (program::priced_bytes)
};

/// One operator as devices with these shares run it, its operands there in the forms that it wants.
struct LoweredOperator {
  graph::Graph graph;                         ///< of this operator alone
  std::vector<program::DeviceProgram> ranks;  ///< its own instructions, by rank asked for
  /// What it exchanges on the way (sums of statistics, a split vocabulary), seen from the first
  /// rank asked for; not what brings operands or results into a form (conversion.h).
  std::vector<InnerExchange> exchanges;
};

/// For prices: what a rewritten operator runs and exchanges. `batch`: for which it is split.
LoweredOperator lower_operator(const graph::Graph& graph, OpId op, const graph::Strategy& strategy,
                               std::int64_t batch, const std::vector<double>& shares,
                               const std::vector<std::size_t>& ranks);

}  // namespace motley::synth
