#pragma once

#include <cstdint>

#include "motley/graph/graph.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// Draws the splits of operators for `devices`, `shares` and `global_batch` of `sharding`, and
/// completes it. Most operators continue an operand's split or pass terms on, so that plans are
/// coherent; some begin a split or run whole. A parameter is kept as its first reader needs it or,
/// one in five, whole. Deterministic by seed. Every lowering can occur.
void draw_sharding(const graph::Graph& graph, std::uint64_t seed, synth::Sharding& sharding);

}  // namespace motley::search
