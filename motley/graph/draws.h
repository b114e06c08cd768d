#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Operators that draw random numbers. Ours draw by the number of the draw and each element's
/// position in the whole batch, so that any plan draws the same (docs/formats/graph.md).

/// Returns whether it is one of ours: motley::dropout or motley::random.
bool is_draw(const Op& op);

/// Returns the draw's number, if one of ours has valid arguments and results.
std::optional<std::int64_t> find_draw_number(const Op& op);

/// Returns whether a draw of ours cannot be split because it concerns all elements: a permutation.
bool draws_across(const Op& op);

/// Returns whether an operator of PyTorch draws from a generator, in place or not. By name, with or
/// without overload. Graphs have none: the exporter replaces them by draws of ours.
bool is_random(std::string_view op_name);

}  // namespace motley::graph
