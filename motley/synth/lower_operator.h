#pragma once

#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/program/program.h"

namespace motley::synth {

/// One operator as devices with these shares run it, its operands there in the forms that it wants.
struct LoweredOperator {
  graph::Graph graph;                         ///< of this operator alone
  std::vector<program::DeviceProgram> ranks;  ///< its own instructions, by rank asked for
};

/// For prices: what a rewritten operator runs besides exchanges. `batch`: for which it is split.
LoweredOperator lower_operator(const graph::Graph& graph, OpId op, const graph::Strategy& strategy,
                               std::int64_t batch, const std::vector<double>& shares,
                               const std::vector<std::size_t>& ranks);

}  // namespace motley::synth
