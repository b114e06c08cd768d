#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/plan/plan.h"
#include "motley/synth/step/sharded_step.h"

namespace motley::synth {

/// A step in several equal micro-batches, one after the other, as one graph. Its size `batch` is
/// that of a micro-batch:
/// - inputs have all samples, [micro_batches * batch, ...], and are cut by views;
/// - an operator that works on samples has a copy for each micro-batch, others are there once, and
///   those that nothing wanted depends on are not;
/// - what is a sum over samples is added up: the loss, gradients; sums of inputs alone first, as
///   others may need them;
/// - means divide by the count of all samples: results of the micro-batch's own count times
///   1 / micro_batches, mean losses over labels by the labels of all, which are counted first; and
///   numbers (graph::SymbolicNumber) are those of the whole batch.
/// So its outputs are those of the graph at the whole batch.
///
/// Where batch norm's statistics are of each micro-batch (plan::BatchNormSpan), it is what
/// PyTorch's loop does that takes as many backward passes a step, each of `part` of a loss:
/// - all is that of the micro-batch alone: statistics, means, numbers, counts of labels;
/// - micro-batch m reads each buffer as m - 1 left it: running statistics, counts of batches;
/// - what else needs all samples at once is refused all the same.
struct Accumulation {
  /// One replica's part of an output of the model.
  struct Term {
    std::size_t output = 0;  ///< position among the model's outputs
    std::size_t replica = 0;
    ValueId value;
  };

  std::int64_t micro_batches = 1;
  /// Of a micro-batch's loss that counts: of a loop 1 / micro_batches, unless the loss is a sum
  /// over samples without any mean.
  double part = 1;
  graph::Graph graph;
  std::vector<Copy> copies;  ///< by operator
  std::vector<Term> terms = {};
  /// Parameters that are gathered again (recomputation.h) as further sources: which, and of which
  /// one.
  std::vector<std::pair<ValueId, ValueId>> again = {};
  /// Of replicas: operators before `early` and those of all replicas come before all micro-batches,
  /// such of all replicas from `late` on behind them.
  std::size_t early = 0, late = 0;
};

/// Micro-batches of replicas: together they have all samples, one after the other.
struct Passes {
  std::vector<plan::Stretch> stretches;  ///< by pass
  std::vector<std::size_t> replica_of;   ///< by pass, ascending
  std::vector<plan::Stretch> replicas;   ///< samples of each
};
Passes find_passes(const plan::Plan& plan);

/// The same for micro-batches that differ and are in several replicas, for what one replica after
/// the other has of it:
/// - sizes are numbers; `batch` is none any more;
/// - each replica has inputs of its own, with its samples, which are cut by slices;
/// - what has no samples is there once, for all replicas (micro_batch -1), and what inputs add up
/// to
///   is summed over the replicas by "motley::sum_replicas"([a term of each]), there once, too;
/// - outputs stay terms: of a loss or gradient each replica has one, or several where it is itself
///   a sum (of a weight's uses), or the first has all, where there are no samples in it; of another
///   output without samples, or of the only pass, all have the same.
Result<Accumulation> accumulate_replicas(const graph::Graph& graph, const Passes& passes,
                                         plan::BatchNormSpan batch_norm);
inline constexpr std::string_view kSumReplicas = "motley::sum_replicas";

/// Usage error (synth.accumulation) naming the first operator that needs all samples at once, and
/// how many more do (statistics of batch norm that are of the step, a loss of a product of means, a
/// permutation of the samples), or where the batch is no multiple of `micro_batches` or too small.
Result<Accumulation> accumulate(const graph::Graph& graph, std::int64_t global_batch,
                                std::int64_t micro_batches,
                                plan::BatchNormSpan batch_norm = plan::BatchNormSpan::kStep);

/// Is there an operator for which the span matters?
bool trains_batch_norm(const graph::Graph& graph);

/// The sharding of the accumulated graph in which every copy is split as its operator in
/// `sharding`, and what was added goes along. `sharding.batch` is a micro-batch, `rules` are of the
/// model's graph at it.
struct AccumulatedSharding {
  Sharding sharding;
  std::vector<graph::ShardingRule> rules;
};
AccumulatedSharding spread_accumulation(const Accumulation& accumulation, const graph::Graph& graph,
                                        const Sharding& sharding,
                                        const std::vector<graph::ShardingRule>& rules);

}  // namespace motley::synth
