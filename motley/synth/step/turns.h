#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/synth/step/schedule.h"

namespace motley::synth {

/// Interleaves the micro-batches of a step, `turns` at a time (0 to turns - 1, then the next ones):
/// before an operator that waits for an exchange started in this turn, the next micro-batch
/// continues until it would wait, too. So one micro-batch's computation hides another's exchange,
/// forward and backward. Each micro-batch keeps its order. If an operator depends on one of another
/// micro-batch (a sum over micro-batches, shared values), that one runs first. Operators before
/// `early` stay. With identical layers:
///
///     micro-batch 0:  a0 | (exchange)   | b0 | (exchange)   |
///     micro-batch 1:     | a1 | (exchange)   | b1 | ...
///
/// The order does not depend on times, so it is the same at any batch and on any rank. `order`: ids
/// are positions in the graph, with operands before their readers; modified in place. O(graph).
void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops, std::int64_t turns,
                std::size_t early, std::vector<OpId>& order);

/// Interleaves all micro-batches of each task (plan/pass_order.h).
void take_turns(const graph::Graph& graph, const std::vector<OpNeeds>& ops,
                const std::vector<OpStretch>& tasks, std::vector<OpId>& order);

}  // namespace motley::synth
