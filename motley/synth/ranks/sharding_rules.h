#pragma once

#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// Rules of all operators at a batch; operators without one get the rule that splits nothing.
std::vector<graph::ShardingRule> find_rules(
    const graph::Graph& graph, std::int64_t batch,
    plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal);

/// The rules that a sharding's strategies are of: those at its batch; on one device, which has all
/// of everything, such as split nothing (graph::rule_alone).
std::vector<graph::ShardingRule> find_rules_of(const graph::Graph& graph, const Sharding& sharding,
                                               plan::BatchNormMode batch_norm);

/// The rule for another operator that is identical but for the names of its tensors.
graph::ShardingRule rule_like(graph::ShardingRule rule, const graph::Op& op);

/// Where each input holds the samples: dimension 0; whole if it does not depend on the batch.
graph::Form input_form(const graph::Graph& graph, ValueId input, std::int64_t batch);

}  // namespace motley::synth
