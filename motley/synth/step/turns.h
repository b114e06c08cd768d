#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/synth/step/schedule.h"

namespace motley::synth {

/// Lets the micro-batches of a step take turns, so many at a time (0 to turns - 1, then the next
/// ones): where an operator would wait for an exchange that was begun in this turn, the next
/// micro-batch goes on until it would wait, too. So what one computes hides what another exchanges,
/// forward and backward. Each micro-batch keeps its order; what depends on another one's operator
/// (a sum over micro-batches, what all share) has that done first. Operators before `early` stay.
/// Of layers that are identical each micro-batch has a half behind and a half ahead of the other's:
///
///     micro-batch 0:  a0 | (exchange)   | b0 | (exchange)   |
///     micro-batch 1:     | a1 | (exchange)   | b1 | ...
///
/// How long anything takes does not matter, so the order is the same at any batch and on any rank.
/// `order`: positions in the graph are ids, operands before their readers; it is changed. O(graph).
void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops, std::int64_t turns,
                std::size_t early, std::vector<OpId>& order);

/// The same within each of some tasks (plan/pass_order.h): all micro-batches that it has take
/// turns.
void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                const std::vector<OpStretch>& tasks, std::vector<OpId>& order);

}  // namespace motley::synth
