#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/graph/rules/sharding_rule.h"
#include "motley/synth/sharded_values.h"

namespace motley::synth {

/// Has lowering instructions for a split that the operator's rule calls rewritten?
bool can_rewrite(const graph::Graph& graph, const graph::Op& op, const graph::Strategy& strategy);

/// Training batch norm that normalises by the samples it sees, and its backward pass.
bool trains_batch_norm(const graph::Op& op);
bool is_batch_norm_backward(const graph::Op& op);

/// Is it a norm, or a variance: one that needs the mean and the spread of its operand?
bool has_statistics(const graph::Op& op);

/// The operators of a sharded step on one rank: plain ones with their local arguments, and those
/// that a split turns into other instructions.
class ShardedOperators : protected ShardedValues {
 protected:
  ShardedOperators(const graph::Graph& graph, const Sharding& sharding, const ShardedStep& step,
                   std::size_t rank, const LowerOptions& options, program::DeviceProgram start)
      : ShardedValues(graph, sharding, step, rank, options, std::move(start)) {}

  void emit_one(OpId id);
  BufferId define(ValueId id, BufferId base = {});
  /// What a loss's labels are worth; `kSpread` where each device has its own ones.
  BufferId label_count(OpId id, Labels kind);

 private:
  /// Sizes of an operator's factors here.
  std::vector<std::int64_t> local_factors(OpId id);
  /// Part of the split factor that is here, of 1.
  double part_of(OpId id);
  program::Argument make_argument(const graph::Argument& argument, OpId id, std::size_t& operand);
  program::ArgumentList make_arguments(OpId id);
  static BufferId first_operand(const program::ArgumentList& arguments);
  /// `weight`: what the results count here.
  void emit_plain(OpId id, double weight);
  /// Results (raw, weighed) times a weight.
  void emit_weighed_results(OpId id, const std::vector<std::pair<BufferId, BufferId>>& results,
                            double weight);
  /// Form in which a value would be cut by samples; empty if it holds none.
  std::optional<graph::Form> sample_form(ValueId value);
  /// No part of it is here: its results are empty, or terms of zero.
  void emit_nothing(OpId id);
  /// x seen as [outer, extent, inner]; a whole x as one that all devices share.
  void emit_dropout(OpId id);
  /// loss = local sum / count over all devices; the count serves the backward pass.
  void emit_nll_mean(OpId id);
  Channels channels_of(ValueId x);
  void emit_batch_norm(OpId id);
  /// By the statistics of the own samples; the running ones become terms of the weighted mean.
  void emit_batch_norm_local(OpId id);
  /// Places that are counted from the first one here.
  void emit_arange(OpId id);
  /// Rows by their own numbers, which begin with 0 in the part that is here.
  void emit_index(OpId id);
  std::int64_t first_here(const graph::Form& form) { return begin(form.extent) * form.inner; }
  void emit_batch_norm_backward(OpId id);

  // ---- a vocabulary that is split (sharded_vocabulary.cc)
  void emit_rewritten(OpId id);
  BufferId call(OpId origin, std::string op, std::string overload, program::ArgumentList arguments,
                DType dtype, std::vector<std::int64_t> shape);
  BufferId zeros(OpId origin, DType dtype, std::vector<std::int64_t> shape);
  /// Ids as rows of the own part, and which are not in it (`spare` stands for those).
  struct LocalIds {
    BufferId rows, outside;
    std::vector<std::int64_t> shape;
  };
  LocalIds local_ids(OpId origin, BufferId ids, std::int64_t first, std::int64_t count,
                     std::int64_t spare, std::optional<std::int64_t> ignored);
  void emit_embedding(OpId id);
  void emit_embedding_backward(OpId id);
  void emit_log_softmax(OpId id);
  void emit_log_softmax_backward(OpId id);
  void emit_nll_classes(OpId id);
  void emit_nll_classes_backward(OpId id);
  BufferId negative_picks(OpId id, BufferId x, const LocalIds& local);
  /// Weights of the targets that are here, 0 for the others.
  BufferId target_weights(OpId id, BufferId weights, const LocalIds& local);
  /// Of the classes that are split: the first one here, and how many.
  std::pair<std::int64_t, std::int64_t> own_classes(const graph::Form& form);

  // ---- statistics over a dimension that is split (sharded_norms.cc)
  BufferId binary(OpId id, std::string op, BufferId a, BufferId b);
  BufferId add_product(OpId id, BufferId a, BufferId b, BufferId c, std::int64_t factor,
                       BufferId like);
  BufferId scale(OpId id, std::string op, BufferId x, double by);
  BufferId seen_as(OpId id, BufferId x, std::vector<std::int64_t> shape);
  BufferId sum_over(OpId id, BufferId x, const std::vector<std::int64_t>& dims);
  BufferId stacked(OpId id, BufferId a, BufferId b);
  BufferId element(OpId id, BufferId x, std::int64_t index);
  void define_seen_as(OpId id, ValueId result, BufferId x);
  /// Over some dimensions of which all devices have `all` elements; f64, these dimensions 1.
  struct Moments {
    BufferId mean, variance;
  };
  Moments moments(OpId id, BufferId x, const std::vector<std::int64_t>& dims, std::int64_t all);
  struct Rows {
    BufferId x;
    std::int64_t count, here, all;  ///< rows; elements of each here, and over all devices
  };
  Rows rows_of(OpId id, BufferId x, ValueId x_value, ValueId statistic);
  BufferId along_x(OpId id, BufferId weight, std::size_t rank);
  void emit_statistics(OpId id);
  void emit_norm(OpId id);
  void emit_norm_backward(OpId id);
  void emit_weighed(OpId id, BufferId normal, BufferId weight, BufferId bias);
  void emit_weight_gradients(OpId id, BufferId grad, BufferId normal);
  void emit_variance(OpId id);
};

}  // namespace motley::synth
