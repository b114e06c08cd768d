#pragma once

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

enum class Labels : std::uint8_t {
  kSpread,  ///< each device has its own labels
  kWhole,   ///< all devices have all labels
};

/// Returns the number of counting labels, or the sum of their class weights, over all devices; f32.
/// Losses over the same labels share it.
BufferId count_labels(RankOperator& op, Labels kind);

}  // namespace motley::synth
