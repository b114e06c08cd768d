#pragma once

#include <cstdint>

#include "motley/graph/graph.h"
#include "motley/synth/step/sharding.h"

namespace motley::search {

/// Draws how operators are split, for `devices`, `shares` and `global_batch` of `sharding`, which
/// it completes. Most operators follow an operand that is sharded already or pass terms on, so that
/// plans hang together; some begin a split of their own or run whole. A parameter is kept as its
/// first operator wants it, or, one in five, whole. Same seed, same result. Everything that
/// lowering has can come.
void draw_sharding(const graph::Graph& graph, std::uint64_t seed, synth::Sharding& sharding);

}  // namespace motley::search
