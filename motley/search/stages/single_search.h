#pragma once

#include <string_view>
#include <vector>

#include "motley/search/stages/stage_search.h"

namespace motley::search {

/// Plans of further searches (PricedStagePlan::is_further) count where they are so much quicker
/// than the first search's: programs differ from the search's clock by a few percent.
inline constexpr double kWorthFurther = 0.97;

/// find_stage_plan (stage_search.h) in one go, over all layers and units as they are, without
/// zones: outcome and bound are of the space within question.limits.
Result<StageOutcome> search_once(const StageQuestion& question);

/// The names of its passes (passes/generators.h, passes/improvers.h).
std::vector<std::string_view> stage_passes();

}  // namespace motley::search
