#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"

namespace motley::search {

/// A reader of a value: an operator's operand, or the graph itself.
struct Reader {
  OpId op;           ///< none: an output of the graph
  int operand = -1;  ///< of the operator's rule; otherwise the output's index in the graph
};

/// The space of a search over shardings: the ways of each operator.
struct SpmdSpace {
  std::int64_t global_batch = 0;
  std::vector<graph::ShardingRule> rules;          ///< by operator
  std::vector<char> is_needed;                     ///< by operator: does an output depend on it?
  std::vector<std::vector<graph::Strategy>> ways;  ///< by operator; the first is whole
  std::vector<std::vector<Reader>> readers;        ///< by value; only needed ones
  std::vector<std::vector<graph::Form>> kept;      ///< by value: possible forms of a source
  std::vector<std::vector<std::int64_t>> shapes;   ///< by value, whole
  /// By operator: equal numbers for operators that differ only in their values' identity.
  std::vector<int> kind_of;
  std::vector<int> value_kind;  ///< by value: equal for equal shapes and dtypes
  /// By operator and value: the number of those it represents in a graph of more layers.
  std::vector<double> op_count, value_count;
  /// By extent that a way cuts: does a device get nothing of it?
  std::map<std::int64_t, bool> has_empty;
};

/// Would find_space return the same for these shares?
bool holds_for(const SpmdSpace& space, const std::vector<double>& shares);

/// Returns the number of parts a way can cut its factor into at most.
std::int64_t extent_of(const SpmdSpace& space, OpId op, const graph::Strategy& way);

/// Finds all coherent ways. Splits begin at the samples of the inputs and at the factors of
/// products, attention, convolutions and look-ups. Each continues through all operators that can
/// follow it without an exchange, towards results and operands, until nothing is new. An operator
/// whose operands can be sums of terms may pass the terms on. So heads, hidden widths, channels,
/// vocabulary and experts have the cut that the whole network supports (a weight of 3 * 12 * 64
/// columns cut by its 12 heads); cuts that no neighbour shares are left out. `shares`: lowering
/// depends on which devices get nothing of a small extent.
SpmdSpace find_space(const graph::Graph& graph, std::int64_t global_batch,
                     const std::vector<double>& shares);

}  // namespace motley::search
