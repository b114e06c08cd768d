#pragma once

#include <string>
#include <vector>

#include "motley/search/spmd/price_sharding.h"

namespace motley::search {

/// A sharding in words, for people: how the samples and other extents are shared out; then layer by
/// layer (layers that are run alike together) how its operators are split, how its parameters are
/// kept, what it exchanges with bytes and seconds, and what the step would cost, by the search's
/// own sum, if this layer were split by samples only, or not at all.
std::vector<std::string> explain_sharding(SpmdStudy& study, const SpmdPlan& plan);

}  // namespace motley::search
