#pragma once

#include <functional>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

// ---- operators that a split changes only in their arguments

/// Writes the operator unchanged; each result is its local result times `weight`.
void write_plain(RankOperator& op, double weight = 1);

/// The same, with a weight for some results only.
using IsWeighed = std::function<bool(std::size_t result)>;
void write_weighed(RankOperator& op, double weight, const IsWeighed& is_weighed);

/// Writes an operator that has no local part: results are empty, or terms of zero. Exchanges that
/// other devices wait for still take place.
void write_nothing(RankOperator& op);

}  // namespace motley::synth
