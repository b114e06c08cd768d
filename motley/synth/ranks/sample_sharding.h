#pragma once

#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// The way of an operator that fits what its operands are held as best: sharded ones as they are,
/// then sums of terms kept apart, then what needs the fewest sums.
graph::Strategy best_strategy(const graph::Graph& graph, OpId op, const graph::ShardingRule& rule,
                              const Held& held, const std::vector<double>& shares);

/// Spreads the samples over the devices and nothing else: data parallelism as a sharding. Each
/// operator gets the way that fits its operands best; one that mixes samples runs whole. On one
/// device all is whole. `sharding` has devices, shares and batch; operators and sources are set,
/// parameters whole. The rules that the strategies are of (find_rules_of). O(graph).
std::vector<graph::ShardingRule> spread_samples(
    const graph::Graph& graph, Sharding& sharding,
    plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal);

/// What becomes of terms that an operator repeats for each sample.
enum class RepeatedTerms : std::uint8_t {
  kSummed,  ///< before, when they are fewer elements
  kKept,    ///< nothing: where sums must wait for the end (accumulation.h)
};

/// The same by given rules, however many devices there are.
void spread_samples_by(const graph::Graph& graph, const std::vector<graph::ShardingRule>& rules,
                       RepeatedTerms repeated, Sharding& sharding);

/// Keeps every parameter that has a dimension of at least the number of devices in parts of its
/// first such dimension (ZeRO): states and updates are spread, gradients are reduce-scattered.
void keep_parameters_in_parts(const graph::Graph& graph, Sharding& sharding);

}  // namespace motley::synth
