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
  Bytes bytes;     ///< priced bytes (program::priced_bytes)
};

/// One operator as devices with these shares run it, with operands already in the forms it wants.
struct LoweredOperator {
  graph::Graph graph;                         ///< of this operator alone
  std::vector<program::DeviceProgram> ranks;  ///< its own instructions, one per requested rank
  /// The operator's inner exchanges (sums of statistics, a split vocabulary), as the first
  /// requested rank runs them, without conversions of operands and results (conversion.h).
  std::vector<InnerExchange> exchanges;
};

/// Lowers one operator for prices. `batch`: the batch for which it is split.
LoweredOperator lower_operator(const graph::Graph& graph, OpId op, const graph::Strategy& strategy,
                               std::int64_t batch, const std::vector<double>& shares,
                               const std::vector<std::size_t>& ranks);

}  // namespace motley::synth
