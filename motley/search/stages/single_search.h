#pragma once

#include "motley/search/stages/stage_search.h"

namespace motley::search {

/// find_stage_plan (stage_search.h) in one go, over all layers and units as they are, without
/// zones: outcome and bound are of the space within question.limits.
Result<StageOutcome> search_once(const StageQuestion& question);

}  // namespace motley::search
