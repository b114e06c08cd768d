#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/graph/rules/strategy.h"
#include "motley/program/program.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/ranks/sharding_rules.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// Whether lowering can run the operator so: not if that needs other instructions which it does not
/// have, or if a term would be no number that can be summed.
bool can_lower(const graph::Graph& graph, OpId op, const graph::ShardingRule& rule,
               const graph::Strategy& strategy, const std::vector<double>& shares);

/// Lowers the graph for all devices (docs/algorithms.md, "Lowering"): each operator with its local
/// arguments on its operands in the forms that its strategy wants; between them conversions
/// (step/conversion.h), each made once.
///
/// With several micro-batches it is the accumulated graph that is lowered (accumulation.h).
/// Gradients take the form of their parameter, of which each device keeps and updates its part. One
/// device has all of everything and exchanges nothing. Errors: strategies that are not those of the
/// operators' rules, or that lowering does not have (synth.sharding); those of check_devices,
/// accumulate and set_methods.
Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options);

/// Whether several devices can run the graph at all. Usage error (synth.unsupported), naming the
/// operator that reads statistics which each device has of its own samples (local batch norm).
/// O(graph).
Result<void> check_devices(const graph::Graph& graph, std::size_t devices,
                           plan::BatchNormMode batch_norm);

/// The same for some ranks only, in this order: not a program that can be run, as its group lacks
/// the others, but enough to price a step where the others are like one of these. `rules`: those of
/// find_rules_of; `accumulation` as find_accumulation gives it, null for none. All exchanges are
/// native. Not verified.
program::Program lower_some_ranks(const graph::Graph& graph, const Sharding& sharding,
                                  const std::vector<graph::ShardingRule>& rules,
                                  const std::vector<std::size_t>& ranks,
                                  const LowerOptions& options,
                                  const Accumulation* accumulation = nullptr);

/// What pricing a step needs: one program for each kind of rank.
struct RankKinds {
  program::Program program;          ///< of the first rank of each kind; as lower_some_ranks gives
  std::vector<std::size_t> of_rank;  ///< its position there
};
/// Ranks of one class (by rank: devices with the same times) whose programs take the same times are
/// one kind.
RankKinds lower_kinds(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<graph::ShardingRule>& rules,
                      const std::vector<int>& classes, const LowerOptions& options,
                      const Accumulation* accumulation = nullptr);

/// None for one micro-batch in which nothing is done again.
Result<std::optional<Accumulation>> find_accumulation(const graph::Graph& graph,
                                                      const Sharding& sharding,
                                                      plan::BatchNormSpan batch_norm);

/// The same of the graph itself, accumulated if need be; errors of accumulate.
Result<program::Program> lower_ranks(const graph::Graph& graph, const Sharding& sharding,
                                     const std::vector<graph::ShardingRule>& rules,
                                     const std::vector<std::size_t>& ranks,
                                     const LowerOptions& options);
std::vector<std::size_t> all_ranks(const Sharding& sharding);

}  // namespace motley::synth
