#pragma once

#include <string>
#include <string_view>

#include "peers/hap/program_search.h"

namespace motley::peers {

/// "all-gather", "slice", "reduce-scatter", "all-reduce" or "all-to-all".
std::string_view conversion_name(const HapConversion& conversion);

/// What a program does beside loading whole parameters and working on slices of the samples: the
/// parameters it splits and the tensors it converts, in order of their names; numbers in names are
/// written '*' and equal lines counted. "pure data parallel" when there is neither.
///
/// Example: "embedding.weight gather(1); all-to-all embedding.*", or "2 x layer*.experts.first
/// gather(0)".
std::string summarize(const SpmdProgram& program, const ReferenceGraph& graph);

}  // namespace motley::peers
