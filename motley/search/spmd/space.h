#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"

namespace motley::search {

/// Who reads a value: operand `operand` of an operator's rule, or the graph itself.
struct Reader {
  OpId op;           ///< none: an output of the graph
  int operand = -1;  ///< of the operator's rule; else the output's position in the graph
};

/// The plans that a search over shardings chooses from: by operator the ways to run it.
struct SpmdSpace {
  std::int64_t global_batch = 0;
  std::vector<graph::ShardingRule> rules;          ///< by operator
  std::vector<char> is_needed;                     ///< by operator: does anything wanted depend
                                                   ///< on it?
  std::vector<std::vector<graph::Strategy>> ways;  ///< by operator; the first is whole
  std::vector<std::vector<Reader>> readers;        ///< by value; needed ones only
  std::vector<std::vector<graph::Form>> kept;      ///< by value: how a source may be kept
  std::vector<std::vector<std::int64_t>> shapes;   ///< by value, whole
  /// By operator: operators of equal number are equal in all but the values that they are between,
  /// and have the same ways.
  std::vector<int> kind_of;
  std::vector<int> value_kind;  ///< by value: equal for equal shapes and dtypes
  /// By operator and value of a graph that stands for one of more layers: for how many of it.
  std::vector<double> op_count, value_count;
  /// By extent that some way cuts: is there a device that gets nothing of it?
  std::map<std::int64_t, bool> has_empty;
};

/// Would find_space find the same for these shares?
bool holds_for(const SpmdSpace& space, const std::vector<double>& shares);

/// How many places a way that splits a factor can cut it at, and one.
std::int64_t extent_of(const SpmdSpace& space, OpId op, const graph::Strategy& way);

/// All ways that hang together. Splits begin at the samples of the inputs and at the factors of
/// products, attentions, convolutions and look-ups; each goes on to all operators that can follow
/// it without an exchange, towards the results and towards the operands, until nothing is new. An
/// operator whose operands can be sums of terms may pass the terms on. So heads, hidden widths,
/// channels, vocabulary and experts are there with the cut that the whole network can take (a
/// weight of 3 * 12 * 64 columns cut by its 12 heads), and a cut that no neighbour shares is not.
/// `shares`: which devices may get nothing of a small extent decides what lowering has.
SpmdSpace find_space(const graph::Graph& graph, std::int64_t global_batch,
                     const std::vector<double>& shares);

}  // namespace motley::search
