#pragma once

#include <string>
#include <vector>

#include "motley/graph/graph.h"

namespace motley::graph {

/// Why devices that share a step repeat work: by layer, the operators on samples that each of them
/// runs whole for want of a rule, and draws across samples; for people. "h.3: whole: no rule for
/// aten::cov, aten::eig". Empty where there are none. Dead operators do not count. O(graph).
std::vector<std::string> explain_without_rule(const Graph& graph, const Sizes& sizes);

}  // namespace motley::graph
