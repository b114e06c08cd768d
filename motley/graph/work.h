#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"

namespace motley::graph {

/// The cost of an operator at given sizes, independent of devices.
struct Work {
  Flops flops;       ///< multiply and add count as two; 0 for pure data movement and views
  Bytes bytes_read;  ///< tensors read, each once
  Bytes bytes_written;
};

/// Returns the work of one operator. Matrix products, convolutions, attention (and their backward
/// passes) and Fourier transforms by formula; views cost nothing; others one operation per element
/// of the largest tensor read or of all results, whichever is more. A look-up by index (embedding,
/// gather) reads as much as it returns, not its whole table.
Work op_work(const Graph& graph, OpId op, const Sizes& sizes);

/// Returns the shape of a value where the operator runs, maybe on a part.
using ShapeOf = std::function<std::vector<std::int64_t>(ValueId)>;
Work op_work(const Graph& graph, OpId op, const ShapeOf& shape_of);

Work total_work(const Graph& graph, const Sizes& sizes);

/// Returns whether the operator (with or without overload) only makes a view of its first argument
/// (view, t, expand, slice, ...). aten::view counts, although it copies non-contiguous memory.
bool is_view(std::string_view op_name);

}  // namespace motley::graph
