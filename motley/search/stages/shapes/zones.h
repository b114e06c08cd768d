#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Layers [first, second).
using LayerStretch = std::pair<std::size_t, std::size_t>;

/// Zones: pools whose hosts reach each other at twice the rate, or more, at which any of them
/// reaches others. Where each zone has a stretch of the layers, and every replica goes through all
/// zones, gradients are summed inside zones and only activations pass between them.
///
/// By pool the stretch of its zone: zones in the order in which the slowest way between neighbours
/// is fastest (of as many as can be tried, else as they come), stretches by what their devices
/// compute. Absent: no device knows a layer, there is one zone, one of a single host, one without a
/// way to the next, or more zones than layers.
std::optional<std::vector<LayerStretch>> find_zone_stretches(const StageCosts& costs);

}  // namespace motley::search
