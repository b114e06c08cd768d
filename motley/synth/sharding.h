#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/program/program.h"
#include "motley/synth/exchange_methods.h"
#include "motley/synth/lower.h"

namespace motley::synth {

struct Accumulation;

/// How one region runs the whole graph on several devices: by operator, how it is split, and by
/// parameter, how it is kept. All that is cut is cut by the same shares, rounded for each extent
/// (plan::round_shares): samples, heads, channels, rows of a table.
struct Sharding {
  std::vector<std::string> devices;  ///< by rank; names
  std::vector<double> shares;        ///< by rank, >= 0, not all 0
  std::int64_t batch = 0;            ///< samples of a micro-batch, for which operators are split
  std::int64_t micro_batches = 1;    ///< of a step, one after the other
  std::vector<graph::Strategy> ops;  ///< by operator
  std::vector<graph::Form> sources;  ///< by value: how parameters are kept, whole or sharded;
                                     ///< inputs are cut by samples, all else is whole
  ExchangeMethods exchanges = {};
  bool operator==(const Sharding&) const = default;
};

/// Rules of all operators at a batch; operators without one get the rule that splits nothing.
std::vector<graph::ShardingRule> find_rules(
    const graph::Graph& graph, std::int64_t batch,
    plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal);

/// The rules that a sharding's strategies are of: those at its batch; on one device, which has all
/// of everything, such as split nothing (graph::rule_alone).
std::vector<graph::ShardingRule> find_rules_of(const graph::Graph& graph, const Sharding& sharding,
                                               plan::BatchNormMode batch_norm);

/// Whether lowering can run the operator so: not if that needs other instructions which it does not
/// have, if a term would be no number that can be summed, or if several devices would draw random
/// numbers.
bool can_lower(const graph::Graph& graph, OpId op, const graph::ShardingRule& rule,
               const graph::Strategy& strategy, const std::vector<double>& shares);

/// Where each input holds the samples: dimension 0; whole if it does not depend on the batch.
graph::Form input_form(const graph::Graph& graph, ValueId input, std::int64_t batch);

/// Lowers the graph for all devices (docs/algorithms.md, "Lowering"): each operator with its local
/// arguments on its operands in the forms that its strategy wants; between them, conversions:
///
///   whole -> sharded     take the own part
///   sharded -> whole     all-gather
///   partial -> whole     all-reduce
///   partial -> sharded   reduce-scatter
///   sharded -> sharded   all-to-all where the dimensions differ, else over whole
///   any -> partial       whole on one device, zeros on the others
///
/// With several micro-batches it is the accumulated graph that is lowered (accumulation.h). A value
/// is converted to a form once. Gradients take the form of their parameter, of which each device
/// keeps and updates its part. One device has all of everything and exchanges nothing. Errors:
/// strategies that are not those of the operators' rules, or that lowering does not have
/// (synth.sharding); those of check_devices, accumulate and set_methods.
Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options);

/// Whether several devices can run the graph at all. Usage errors (synth.unsupported), naming the
/// operator: one that draws random numbers other than by global element (dropout), or that reads
/// statistics which each device has of its own samples (local batch norm). O(graph).
Result<void> check_devices(const graph::Graph& graph, std::size_t devices,
                           plan::BatchNormMode batch_norm);

/// The same for some ranks only, in this order: not a program that can be run, as its group lacks
/// the others, but enough to price a step where the others are like one of these. `rules`: those of
/// find_rules_of; `accumulation` of the graph, null for one micro-batch. All exchanges are native.
/// Not verified.
program::Program lower_some_ranks(const graph::Graph& graph, const Sharding& sharding,
                                  const std::vector<graph::ShardingRule>& rules,
                                  const std::vector<std::size_t>& ranks,
                                  const LowerOptions& options,
                                  const Accumulation* accumulation = nullptr);

}  // namespace motley::synth
