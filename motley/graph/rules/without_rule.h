#pragma once

#include <string>
#include <vector>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Explains why devices that share a step repeat work: lists, by layer, the operators on samples
/// without a rule, which every device runs whole, and draws across samples. "h.3: whole: no rule
/// for aten::cov, aten::eig". Empty if there are none. Ignores dead operators. O(graph).
std::vector<std::string> explain_without_rule(const Graph& graph, const Sizes& sizes);

}  // namespace motley::graph
