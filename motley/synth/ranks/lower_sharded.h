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

/// Can lowering run the operator with this strategy? Not if that needs instructions that it lacks,
/// or if a term is no number that can be summed.
bool can_lower(const graph::Graph& graph, OpId op, const graph::ShardingRule& rule,
               const graph::Strategy& strategy, const std::vector<double>& shares);

/// Lowers the graph for all devices (docs/algorithms.md, "Lowering"): each operator with local
/// arguments and with operands in the forms that its strategy wants. Conversions between them
/// (step/conversion.h) are made once each.
///
/// With several micro-batches, the accumulated graph is lowered (accumulation.h). Gradients take
/// the form of their parameter; each device keeps and updates its part. A device alone has
/// everything and exchanges nothing. Errors: strategies that the operators' rules or lowering do
/// not have (synth.sharding); those of check_devices, accumulate and set_methods.
Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options);

/// Can several devices run the graph? Usage error (synth.unsupported) that names the operator which
/// reads statistics of each device's own samples (local batch norm). O(graph).
Result<void> check_devices(const graph::Graph& graph, std::size_t devices,
                           plan::BatchNormMode batch_norm);

/// Lowers some ranks only, in this order. The result cannot run, as its group lacks the other
/// ranks, but prices a step if the others are like one of these. `rules`: from find_rules_of;
/// `accumulation`: from find_accumulation, or null. All exchanges are native. Not verified.
program::Program lower_some_ranks(const graph::Graph& graph, const Sharding& sharding,
                                  const std::vector<graph::ShardingRule>& rules,
                                  const std::vector<std::size_t>& ranks,
                                  const LowerOptions& options,
                                  const Accumulation* accumulation = nullptr);

/// The programs needed to price a step: one for each kind of rank.
struct RankKinds {
  program::Program program;          ///< the first rank of each kind; see lower_some_ranks
  std::vector<std::size_t> of_rank;  ///< index of its kind's device in `program`
};
/// Groups ranks of one class (by rank; equal device times) whose programs take the same times.
RankKinds lower_kinds(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<graph::ShardingRule>& rules,
                      const std::vector<int>& classes, const LowerOptions& options,
                      const Accumulation* accumulation = nullptr);

/// Returns none for one micro-batch without recomputation.
Result<std::optional<Accumulation>> find_accumulation(const graph::Graph& graph,
                                                      const Sharding& sharding,
                                                      plan::BatchNormSpan batch_norm);

/// Lowers the graph's ranks, accumulated if needed; errors of accumulate.
Result<program::Program> lower_ranks(const graph::Graph& graph, const Sharding& sharding,
                                     const std::vector<graph::ShardingRule>& rules,
                                     const std::vector<std::size_t>& ranks,
                                     const LowerOptions& options);
std::vector<std::size_t> all_ranks(const Sharding& sharding);

}  // namespace motley::synth
