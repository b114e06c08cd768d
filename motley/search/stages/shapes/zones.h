#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

using LayerStretch = std::pair<std::size_t, std::size_t>;

/// Finds zones: pools whose hosts reach each other at twice the rate at which any of them reaches
/// others, or more. With a range of layers per zone, and every replica spanning all zones,
/// gradients are summed inside zones and only activations pass between them.
///
/// Returns the range of each pool's zone. Zones are ordered to make the slowest link between
/// neighbours fastest (as many as can be tried, else in their order); ranges are proportional to
/// compute. Absent if no device knows a layer, or there is only one zone, a zone of a single host,
/// no link between neighbours, or more zones than layers.
std::optional<std::vector<LayerStretch>> find_zone_stretches(const StageCosts& costs);

}  // namespace motley::search
