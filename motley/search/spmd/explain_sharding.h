#pragma once

#include <string>
#include <vector>

#include "motley/search/spmd/price_sharding.h"

namespace motley::search {

/// Explains a sharding in sentences: shares of samples and other extents; then by layer (identical
/// layers together) the splits of its operators, the forms of its parameters, its exchanges with
/// bytes and seconds, and the cost of the step, in the search's own sum, if this layer were split
/// by samples only, or not at all.
std::vector<std::string> explain_sharding(SpmdStudy& study, const SpmdPlan& plan);

}  // namespace motley::search
