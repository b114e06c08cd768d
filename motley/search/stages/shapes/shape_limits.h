#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Units that may be combined in a replica.
enum class UnitMix { kAll, kOneKind, kOnePool };

/// Limits of stages; the defaults allow everything.
struct ShapeLimits {
  bool one_layer_stages = false;  ///< each layer is a stage
  UnitMix mix = UnitMix::kAll;
  std::size_t most_stages = 1'000'000;
  /// By pool, the layers [first, second) that its stages may have (zones.h); empty: all.
  std::vector<std::pair<std::size_t, std::size_t>> stretches;
  bool allows(const StageUnit& unit, std::size_t first, std::size_t end) const {
    return stretches.empty() ||
           (stretches[unit.pool()].first <= first && end <= stretches[unit.pool()].second);
  }
};

}  // namespace motley::search
