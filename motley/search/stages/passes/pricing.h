#pragma once

#include <cstdint>
#include <optional>

#include "motley/base/result.h"
#include "motley/search/stages/passes/mix.h"
#include "motley/search/stages/passes/shape_estimates.h"

namespace motley::search {

/// Are layers moved between neighbouring stages before a mix is priced?
enum class LayerMoves { kTried, kLeft };

struct PricedMix {
  std::optional<PricedStagePlan> best;  ///< absent: it does not fit
  std::int64_t simulated = 0;           ///< plans
};

/// Makes a plan of a mix, with cuts and orders of passes that are better for what each part does,
/// samples so that all end together, and the faster of two ways to place it, and prices it. The
/// second way is tried while the plan is not much slower than `fastest`, of those priced so far.
Result<PricedMix> price_mix(const SearchSpace& space, const ShapeEstimates& estimates,
                            ReplicaMix mix, LayerMoves moves, Seconds fastest);

/// Gives each part the micro-batch that is fastest for what it does: columns have those that were
/// worth their price, in other times.
ReplicaMix choose_micro_batches(const SearchSpace& space, const ShapeEstimates& estimates,
                                ReplicaMix mix);

}  // namespace motley::search
