#pragma once

#include <string>
#include <string_view>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Parses the text form (docs/formats/graph.md) and verifies it. Errors read
/// "NAME:LINE: found ..., wanted ..." (usage, code graph.parse or graph.verify).
Result<Graph> parse_graph(std::string_view text, const std::string& name);

/// Canonical text: parse_graph(print_graph(g)) == g and print_graph(parse_graph(t)) is stable.
std::string print_graph(const Graph& graph);

/// Text of one argument list element ("size(batch*4)", "%12", "[1, 1]"), as print_graph writes it.
std::string print_argument(const SymbolicArgument& argument);

/// Everything the rest relies on: one loss (a scalar), values defined before use and by one
/// producer, names unique, gradients of parameters with the parameter's dtype and shape, updates of
/// buffers, every size name declared, shapes integral and non-negative at the smallest and the
/// largest size, dimension 0 of each input is the batch. All violations in one message.
Result<void> verify_graph(const Graph& graph, const std::string& name);

}  // namespace motley::graph
