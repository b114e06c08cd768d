#pragma once

#include <functional>

#include "motley/synth/operators/rank_operator.h"

namespace motley::synth {

// ---- operators that a split leaves as they are, but for their arguments

/// As it is, each of its results being `weight` of what it gives here.
void write_plain(RankOperator& op, double weight = 1);

/// The same, with a weight for some results only.
using IsWeighed = std::function<bool(std::size_t result)>;
void write_weighed(RankOperator& op, double weight, const IsWeighed& is_weighed);

/// No part of it is here: its results are empty, or terms of zero. Exchanges that others wait for
/// take place.
void write_nothing(RankOperator& op);

}  // namespace motley::synth
