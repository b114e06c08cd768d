#pragma once

#include "motley/graph/graph.h"
#include "motley/synth/sharding.h"

namespace motley::synth {

/// The way of an operator that fits what its operands are held as (`homes`, by value) best: sharded
/// ones as they are, then sums of terms kept apart, then what needs the fewest sums.
graph::Strategy best_strategy(const graph::Graph& graph, OpId op, const graph::ShardingRule& rule,
                              const std::vector<graph::Form>& homes,
                              const std::vector<double>& shares);

/// Spreads the samples over the devices and nothing else: data parallelism as a sharding. Each
/// operator gets the way that fits its operands best; one that mixes samples runs whole.
/// `sharding` has devices, shares and global batch; operators and sources are set, parameters
/// whole. O(graph).
void spread_samples(const graph::Graph& graph, Sharding& sharding);

/// Keeps every parameter that has a dimension of at least the number of devices in parts of its
/// first such dimension (ZeRO): states and updates are spread, gradients are reduce-scattered.
void keep_parameters_in_parts(const graph::Graph& graph, Sharding& sharding);

}  // namespace motley::synth
