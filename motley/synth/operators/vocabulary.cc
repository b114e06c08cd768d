// Operators over a vocabulary (rows of a table, classes of a softmax) that is split over devices.

#include "motley/synth/operators/vocabulary.h"

#include <limits>
#include <utility>

#include "motley/program/parts.h"
#include "motley/synth/operators/arithmetic.h"
#include "motley/synth/operators/plain.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {

LocalIds find_local_ids(RankOperator& op, BufferId ids, Range own, std::int64_t spare,
                        std::optional<std::int64_t> ignored) {
  const Shape shape = op.builder().buffer(ids).shape;
  const auto compare = [&](std::string_view name, BufferId of, std::int64_t with) {
    return op.call(name, {{of}, number(with)}, DType::kBool, shape);
  };
  const auto either = [&](BufferId a, BufferId b) {
    return op.call("aten::logical_or", {{a}, {b}}, DType::kBool, shape);
  };
  const BufferId shifted =
      op.call_like(ids, "aten::sub.Scalar", {{ids}, number(own.first), {std::int64_t{1}}});
  const BufferId above = compare("aten::ge.Scalar", shifted, own.count);
  BufferId outside = either(compare("aten::lt.Scalar", shifted, 0), above);
  if (ignored) outside = either(outside, compare("aten::eq.Scalar", ids, *ignored));
  return {filled(op, shifted, outside, number(spare)), outside};
}

namespace {

using graph::Graph;
using graph::Op;
using graph::Strategy;

bool reads_part_of_table(const Graph&, const Op&, const Strategy& strategy) {
  return is_consecutive(strategy.operands[0]);
}

/// (table, ids, ...): a term of the result: own rows of the table, zeros for other ids.
void write_embedding(RankOperator& op) {
  const Range own = op.rank().own_range(op.operand_form(0));
  if (own.count == 0) return write_nothing(op);
  const Arguments given = op.arguments();
  const LocalIds local = find_local_ids(op, buffer_at(given, 1), own, 0);
  const BufferId rows =
      op.call("aten::embedding", {given[0], {local.rows}, {std::int64_t{-1}}, {false}, {false}},
              op.dtype(0), op.rank().whole_shape(op.op().outputs[0]));
  const BufferId mask = unsqueezed(op, local.outside, -1);
  op.give(0, "aten::masked_fill.Scalar", {{rows}, {mask}, number(0.0)});
}

bool gives_part_of_table(const Graph&, const Op& op, const Strategy& strategy) {
  return is_consecutive(strategy.results[0]) && !is_true(op.arguments[4]);  // scale_grad_by_freq
}

/// (grad, ids, rows, padding_idx, ...): ids of other devices go to one extra row, cut off later
void write_embedding_backward(RankOperator& op) {
  const Range own = op.rank().own_range(op.result_form(0));
  const Arguments given = op.arguments();
  const auto padding = op.given<std::int64_t>(3);
  const LocalIds local = find_local_ids(op, buffer_at(given, 1), own, own.count,
                                        padding >= 0 ? std::optional(padding) : std::nullopt);
  Shape shape = op.rank().whole_shape(op.op().outputs[0]);
  shape[0] = own.count + 1;
  const BufferId wide = op.call(op.op().full_name(),
                                {given[0], {local.rows}, {shape[0]}, {std::int64_t{-1}}, {false}},
                                op.dtype(0), shape);
  op.give(0, "aten::slice.Tensor",
          {{wide}, {std::int64_t{0}}, {std::int64_t{0}}, {own.count}, {std::int64_t{1}}});
}

/// Takes softmax that sums in its own dtype: no half input with single output (half_to_float).
bool takes_softmax(const Graph& graph, const Op& op, const Strategy&) {
  return is_single_or_double(graph, op.outputs[0]) &&
         (op.name != "aten::_log_softmax" || !is_true(op.arguments[2]));
}

/// Returns the maximum over all devices' maxima along a dimension, of shape `thin`.
BufferId most_of_all(RankOperator& op, BufferId x, std::int64_t dim, const Shape& thin) {
  RankStep& rank = op.rank();
  const std::string& label = op.op().module;
  const DType dtype = op.builder().buffer(x).dtype;
  Arguments lowest = zeros_arguments(thin, dtype);  // aten::full has one more argument
  lowest.insert(lowest.begin() + 1, program::Argument{-std::numeric_limits<double>::infinity()});
  const bool has_any = rank.own(op.operand_form(0).extent) > 0;
  const BufferId own = has_any
                           ? op.call("aten::amax", {{x}, {integers({dim})}, {true}}, dtype, thin)
                           : op.call("aten::full", std::move(lowest), dtype, thin);
  const auto ranks = static_cast<std::int64_t>(rank.ranks());
  const std::int64_t elements = op.builder().buffer(own).elements();
  const BufferId flat = op.builder().cut(own, {1, elements, 1}, {elements}, label);
  const BufferId all =
      op.builder().exchange(program::kAllGather, flat, {integers(Shape(rank.ranks(), elements))},
                            ranks * elements, label);
  const BufferId rows = op.builder().unpack(all, {{ranks, elements}}, label).front();
  const BufferId most =
      op.call("aten::amax", {{rows}, {integers({0})}, {false}}, dtype, {elements});
  return op.builder().unpack(most, {thin}, label).front();
}

/// y = x - m - log(sum exp(x - m)); m is the maximum over all parts.
void write_log_softmax(RankOperator& op) {
  const BufferId x = buffer_at(op.arguments(), 0);
  const std::int64_t dim = op.operand_form(0).dim;
  const Shape thin = thinned(op.builder().buffer(x).shape, {dim});
  const BufferId below = binary(op, "aten::sub.Tensor", x, most_of_all(op, x, dim, thin));
  const BufferId sum = sum_over(op, op.call_like(below, "aten::exp", {{below}}), {dim});
  op.all_reduce(sum);
  const BufferId log = op.call_like(sum, "aten::log", {{sum}});
  op.give(0, "aten::sub.Tensor", {{below}, {log}, {std::int64_t{1}}});
}

/// (grad, y, dim, dtype): grad - exp(y) sum(grad).
void write_log_softmax_backward(RankOperator& op) {
  const Arguments given = op.arguments();
  const BufferId grad = buffer_at(given, 0), y = buffer_at(given, 1);
  const BufferId sum = sum_over(op, grad, {op.operand_form(0).dim});
  op.all_reduce(sum);
  const BufferId share = op.call_like(y, "aten::exp", {{y}});
  const BufferId spread = binary(op, "aten::mul.Tensor", share, sum);
  op.give(0, "aten::sub.Tensor", {{grad}, {spread}, {std::int64_t{1}}});
}

}  // namespace

Rewrites vocabulary_rewrites() {
  static constexpr Rewrite kVocabulary[] = {
      {"aten::embedding", reads_part_of_table, write_embedding},
      {"aten::embedding_dense_backward", gives_part_of_table, write_embedding_backward},
      {"aten::_log_softmax", takes_softmax, write_log_softmax},
      {"aten::_log_softmax_backward_data", takes_softmax, write_log_softmax_backward},
  };
  return kVocabulary;
}

}  // namespace motley::synth
