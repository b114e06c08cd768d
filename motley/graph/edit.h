#pragma once

#include <cstdint>
#include <utility>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Puts `map(ValueId)` in the place of every value among the arguments, lists included, in order.
template <typename Map>
void map_values(SymbolicArguments& arguments, const Map& map) {
  for (SymbolicArgument& argument : arguments) {
    if (auto* id = std::get_if<ValueId>(&argument.value)) *id = map(*id);
    if (auto* list = std::get_if<SymbolicArguments>(&argument.value)) map_values(*list, map);
  }
}

inline ValueId add_value(Graph& graph, Value value) {
  graph.values.push_back(std::move(value));
  return ValueId(graph.values.size() - 1);
}

/// Adds an operator that makes its outputs, which are there.
inline void add_op(Graph& graph, Op op) {
  const OpId id(graph.ops.size());
  for (const ValueId output : op.outputs) graph.values[output.index()].producer = id;
  graph.ops.push_back(std::move(op));
}

}  // namespace motley::graph
