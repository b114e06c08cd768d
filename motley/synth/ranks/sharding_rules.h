#pragma once

#include <cstdint>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// Returns all operators' rules at a batch; one without a rule gets one that splits nothing.
std::vector<graph::ShardingRule> find_rules(
    const graph::Graph& graph, std::int64_t batch,
    plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal);

/// Returns the rules of a sharding's strategies: those at its batch or, on a device alone, rules
/// that split nothing (graph::rule_alone).
std::vector<graph::ShardingRule> find_rules_of(const graph::Graph& graph, const Sharding& sharding,
                                               plan::BatchNormMode batch_norm);

/// Returns the rule for another operator that differs only in tensor names.
graph::ShardingRule rule_like(graph::ShardingRule rule, const graph::Op& op);

/// Returns an input's form: split by samples in dimension 0; whole if independent of the batch.
graph::Form input_form(const graph::Graph& graph, ValueId input, std::int64_t batch);

}  // namespace motley::synth
