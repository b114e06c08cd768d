#pragma once

#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// Returns the strategy that best fits the forms of an operator's operands: sharded operands as
/// they are, then separate terms, then the fewest sums.
graph::Strategy best_strategy(const graph::Graph& graph, OpId op, const graph::ShardingRule& rule,
                              const Held& held, const std::vector<double>& shares);

/// Spreads only the samples over the devices: data parallelism as a sharding. Each operator gets
/// the strategy that fits its operands best; one that mixes samples runs whole. On one device
/// everything is whole. `sharding` has devices, shares and batch; operators and sources are set,
/// parameters whole. Returns the rules of the strategies (find_rules_of). O(graph).
std::vector<graph::ShardingRule> spread_samples(
    const graph::Graph& graph, Sharding& sharding,
    plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal);

/// How an operator that repeats terms for each sample treats them.
enum class RepeatedTerms : std::uint8_t {
  kSummed,  ///< summed first, if they have fewer elements
  kKept,    ///< kept as terms, where sums must wait for the end (accumulation.h)
};

/// The same with given rules, for any number of devices.
void spread_samples_by(const graph::Graph& graph, const std::vector<graph::ShardingRule>& rules,
                       RepeatedTerms repeated, Sharding& sharding);

/// Shards every parameter along its first dimension with at least as many elements as there are
/// devices (ZeRO): states and updates are spread, gradients are reduce-scattered.
void keep_parameters_in_parts(const graph::Graph& graph, Sharding& sharding);

}  // namespace motley::synth
