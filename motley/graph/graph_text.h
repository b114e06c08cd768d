#pragma once

#include <string>
#include <string_view>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Parses and verifies the text form (docs/formats/graph.md). Errors are "NAME:LINE: found ...,
/// wanted ..." (usage, code graph.parse or graph.verify).
Result<Graph> parse_graph(std::string_view text, const std::string& name);

/// Prints canonical text: parse_graph(print_graph(g)) == g.
std::string print_graph(const Graph& graph);

/// Prints one argument as print_graph does ("size(batch*4)", "%12", "[1, 1]").
std::string print_argument(const SymbolicArgument& argument);

/// Verifies what the rest relies on: one loss (a scalar), values defined once and before use,
/// unique names, gradients with their parameter's dtype and shape, updates of buffers, declared
/// size names, shapes integral and non-negative at the smallest and the largest size, the batch as
/// dimension 0 of each input. Reports all violations in one message.
Result<void> verify_graph(const Graph& graph, const std::string& name);

}  // namespace motley::graph
