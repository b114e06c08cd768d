#pragma once

#include "motley/search/model_stages/layer_times.h"

namespace motley::search {

/// No plan of stages takes less, wherever it is cut: the pieces' work alone, spread over all
/// devices in any parts, at the micro-batch at which it takes least.
Seconds find_least_step(const ModelUnits& units, const LayerTimes& times);

}  // namespace motley::search
