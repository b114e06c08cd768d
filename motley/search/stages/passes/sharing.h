#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/search/stages/passes/mix.h"
#include "motley/search/stages/passes/shape_estimates.h"

namespace motley::search {

/// Gives each replica of a mix its samples, so that all end together by what the simulator says of
/// one of each part: together the batch or more. `made`: its plan, in places.
Result<std::vector<std::int64_t>> share_samples(const SearchSpace& space,
                                                const ShapeEstimates& estimates,
                                                const ReplicaMix& mix, const MixPlan& made);

/// Takes samples beyond the batch from the slowest replicas, what is left over after full
/// micro-batches first. Micro-batches get smaller where first and last are full only then.
void trim_samples(const SearchSpace& space, const ReplicaMix& mix, MixPlan& made);

}  // namespace motley::search
