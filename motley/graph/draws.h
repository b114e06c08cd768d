#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Operators that draw random numbers. Those of ours draw by the number of the draw and the place
/// of each element in the whole batch, so that any plan draws the same (docs/formats/graph.md).

/// Is it one of ours: motley::dropout or motley::random?
bool is_draw(const Op& op);

/// The number of its draw, where one of ours has the arguments and results of its definition.
std::optional<std::int64_t> find_draw_number(const Op& op);

/// Is it a draw of ours of which no device can have a part, as it is one of all elements: a
/// permutation?
bool draws_across(const Op& op);

/// Does PyTorch's operator draw from a generator of its own, in place or not? By name, with or
/// without overload. Graphs hold none: the exporter writes draws of ours in their place.
bool is_random(std::string_view op_name);

}  // namespace motley::graph
