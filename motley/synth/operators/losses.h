#pragma once

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

enum class Labels : std::uint8_t {
  kSpread,  ///< each device has its own ones
  kWhole,   ///< all devices have all
};

/// What the labels of a negative log-likelihood are worth over all devices: how many count, or
/// their classes' weights; f32. Losses over the same labels share it.
BufferId count_labels(RankOperator& op, Labels kind);

}  // namespace motley::synth
