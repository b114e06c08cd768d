#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "motley/base/units.h"
#include "motley/graph/graph.h"

namespace motley::graph {

/// What an operator costs in the abstract at given sizes.
struct Work {
  Flops flops;       ///< multiply and add count as two; 0 for pure data movement and views
  Bytes bytes_read;  ///< tensors read, each once
  Bytes bytes_written;
};

/// Work of one operator. Matrix products, convolutions and attention (and their backwards) and
/// Fourier transforms by formula; views cost nothing; everything else one operation per element
/// touched, that is per element of the largest tensor read or of all results, whichever is more. A
/// look-up by index (embedding, gather) reads as much as it gives, not its whole table.
Work op_work(const Graph& graph, OpId op, const Sizes& sizes);

/// Shape of a value where the operator runs, which may have a part of it only.
using ShapeOf = std::function<std::vector<std::int64_t>(ValueId)>;
Work op_work(const Graph& graph, OpId op, const ShapeOf& shape_of);

Work total_work(const Graph& graph, const Sizes& sizes);

/// Does the operator only give another view of its first argument's memory (view, t, expand,
/// slice, ...)? By name, with or without overload; used for liveness and for costs. aten::view is
/// one although on memory that is not contiguous it copies when run.
bool is_view(std::string_view op_name);

}  // namespace motley::graph
