#pragma once

#include <string>
#include <string_view>

#include "peers/hap/program_search.h"

namespace motley::peers {

/// Returns "all-gather", "slice", "reduce-scatter", "all-reduce" or "all-to-all".
std::string_view conversion_name(const HapConversion& conversion);

/// Summarizes a program beyond whole parameters and slices of the samples: split parameters and
/// converted tensors, ordered by name. Numbers in names become '*' and equal lines are counted.
/// "pure data parallel" when there is neither.
///
/// Example: "embedding.weight gather(1); all-to-all embedding.*", or "2 x layer*.experts.first
/// gather(0)".
std::string summarize(const SpmdProgram& program, const ReferenceGraph& graph);

}  // namespace motley::peers
