#pragma once

#include <cstddef>
#include <vector>

#include "motley/search/model_stages/finer_layers.h"
#include "motley/search/stages/costs/stage_costs.h"

namespace motley::search {

/// Cuts between layers, and in those that are large beside a device's share of a pass: each stretch
/// ends where little passes, in all so few that they can be searched. Numbers of pieces, from 0 to
/// their number. Empty where layers are small, or nobody knows what they take.
/// `costs`: of the pieces; `devices`: that share the model.
std::vector<std::size_t> find_finer_cuts(const StageCosts& costs, const FinerLayers& pieces,
                                         std::size_t devices);

}  // namespace motley::search
