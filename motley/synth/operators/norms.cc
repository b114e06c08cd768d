// Layer, RMS and group norms over split dimensions: local sums, their exchange, the rest.

#include <algorithm>
#include <iterator>
#include <limits>

#include "motley/base/check.h"
#include "motley/synth/operators/arithmetic.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {
namespace {

constexpr int kNone = -1;

/// Positions of a norm's arguments; kNone: absent. Results: y, mean, rstd, or the gradients of x,
/// weight, bias. A norm without a mean has no bias.
struct Norm {
  std::string_view name;
  int grad, x, mean, rstd, weight, bias, eps;
  bool has_mean, is_grouped;
};
constexpr Norm kNorms[] = {
    {"aten::native_layer_norm", kNone, 0, kNone, kNone, 2, 3, 4, true, false},
    {"aten::_fused_rms_norm", kNone, 0, kNone, kNone, 2, kNone, 3, false, false},
    {"aten::native_group_norm", kNone, 0, kNone, kNone, 1, 2, 7, true, true},
    {"aten::native_layer_norm_backward", 0, 1, 3, 4, 5, 6, kNone, true, false},
    {"aten::_fused_rms_norm_backward", 0, 1, kNone, 3, 4, kNone, kNone, false, false},
    {"aten::native_group_norm_backward", 0, 1, 2, 3, 4, kNone, kNone, true, true},
};

const Norm& norm_of(const RankOperator& op) {
  const auto* found = std::find_if(std::begin(kNorms), std::end(kNorms),
                                   [&](const Norm& each) { return each.name == op.op().name; });
  MOTLEY_CHECK(found != std::end(kNorms));
  return *found;
}

/// x viewed as [rows, local elements of a row], one row per mean.
struct Rows {
  BufferId x;
  std::int64_t count, here, all;  ///< rows; elements of each, locally and over all devices
};
Rows rows_of(RankOperator& op, BufferId x, ValueId x_value, ValueId statistic) {
  const std::int64_t rows = op.rank().whole_elements(statistic);
  const std::int64_t here = op.builder().buffer(x).elements() / std::max<std::int64_t>(1, rows);
  return {seen_as(op, x, {rows, here}), rows, here,
          op.rank().whole_elements(x_value) / std::max<std::int64_t>(1, rows)};
}

/// Shapes weights for multiplication with x: those of group norms belong to dimension 1.
BufferId along_x(RankOperator& op, BufferId weight, std::size_t rank) {
  if (!norm_of(op).is_grouped) return weight;
  Shape shape(rank - 1, 1);
  shape[0] = op.builder().buffer(weight).elements();
  return seen_as(op, weight, shape);
}

/// y = normal * weight + bias.
void give_weighed(RankOperator& op, BufferId normal, BufferId weight, BufferId bias) {
  if (weight.is_none()) return give_seen_as(op, 0, normal);
  const Shape shape = op.result_shape(0);
  const BufferId seen = seen_as(op, normal, shape);
  const BufferId weights = along_x(op, weight, shape.size());
  if (bias.is_none()) return op.give(0, "aten::mul.Tensor", {{seen}, {weights}});
  const BufferId biases = along_x(op, bias, shape.size());
  op.give(0, "aten::addcmul", {{biases}, {seen}, {weights}, {std::int64_t{1}}});
}

/// rstd = 1 / sqrt(spread + eps). A norm without eps uses its dtype's epsilon.
BufferId find_rstd(RankOperator& op, BufferId spread, const program::Argument& eps, DType dtype) {
  const double least = dtype == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                            : std::numeric_limits<float>::epsilon();
  const bool has_eps = std::holds_alternative<double>(eps.value);
  const BufferId raised =
      op.call_like(spread, "aten::add.Scalar",
                   {{spread}, has_eps ? eps : program::Argument{least}, {std::int64_t{1}}});
  return op.in_dtype(op.call_like(raised, "aten::rsqrt", {{raised}}), dtype);
}

void write_norm(RankOperator& op) {
  const Norm& norm = norm_of(op);
  const Arguments given = op.arguments();
  const BufferId x = buffer_at(given, norm.x);
  const DType dtype = op.builder().buffer(x).dtype;
  const std::size_t last = op.op().outputs.size() - 1;
  const Rows rows = rows_of(op, x, op.given<ValueId>(0), op.op().outputs[last]);
  BufferId spread, normal = rows.x;
  if (norm.has_mean) {
    const Moments found = find_moments(op, rows.x, {1}, rows.all);
    const BufferId mean = op.in_dtype(found.mean, dtype);
    give_seen_as(op, 1, mean);
    normal = binary(op, "aten::sub.Tensor", rows.x, mean);
    spread = found.variance;
  } else {
    const BufferId sum = sum_over(op, binary(op, "aten::mul.Tensor", rows.x, rows.x), {1});
    op.all_reduce(sum);
    spread = scale(op, "aten::div.Scalar", sum, static_cast<double>(rows.all));
  }
  const BufferId rstd = find_rstd(op, spread, given[static_cast<std::size_t>(norm.eps)], dtype);
  give_seen_as(op, last, rstd);
  normal = binary(op, "aten::mul.Tensor", normal, rstd);
  give_weighed(op, normal, buffer_at(given, norm.weight), buffer_at(given, norm.bias));
}

/// Sums grad * normal and grad over the dimensions that weights do not have.
void give_weight_gradients(RankOperator& op, BufferId grad, BufferId normal) {
  const bool is_grouped = norm_of(op).is_grouped;
  const std::size_t rank = op.builder().buffer(grad).shape.size();
  for (std::size_t r = 1; r < op.op().outputs.size(); ++r) {
    if (op.dtype(r) == DType::kNone) {
      op.define(r);
      continue;
    }
    const std::size_t summed = is_grouped ? rank : rank - op.result_shape(r).size();
    Shape dims;
    for (std::size_t d = 0; d < summed; ++d)
      if (!is_grouped || d != 1) dims.push_back(static_cast<std::int64_t>(d));
    const BufferId each = r == 1 ? binary(op, "aten::mul.Tensor", grad, normal) : grad;
    op.give(r, "aten::sum.dim_IntList", {{each}, {integers(dims)}, {false}, none()});
  }
}

/// With n the normalised x and g = grad * weight: rstd * (g - mean(g) - n * mean(g * n)).
void write_norm_backward(RankOperator& op) {
  const Norm& norm = norm_of(op);
  const Arguments given = op.arguments();
  const BufferId x = buffer_at(given, norm.x), grad = buffer_at(given, norm.grad);
  const BufferId weight = buffer_at(given, norm.weight);
  const Shape shape = op.builder().buffer(x).shape;
  const Rows rows = rows_of(op, x, op.given<ValueId>(static_cast<std::size_t>(norm.x)),
                            op.given<ValueId>(static_cast<std::size_t>(norm.rstd)));
  const Shape thin{rows.count, 1};
  const BufferId rstd = seen_as(op, buffer_at(given, norm.rstd), thin);
  BufferId normal = rows.x;
  if (norm.has_mean)
    normal = binary(op, "aten::sub.Tensor", normal, seen_as(op, buffer_at(given, norm.mean), thin));
  normal = binary(op, "aten::mul.Tensor", normal, rstd);
  if (op.dtype(0) == DType::kNone) {
    op.define(0);
  } else {
    const BufferId weighed =
        weight.is_none() ? grad
                         : binary(op, "aten::mul.Tensor", grad, along_x(op, weight, shape.size()));
    BufferId inner = seen_as(op, weighed, {rows.count, rows.here});
    BufferId sums = sum_over(op, binary(op, "aten::mul.Tensor", inner, normal), {1});
    if (norm.has_mean) sums = stacked(op, sum_over(op, inner, {1}), sums);
    op.all_reduce(sums);
    const BufferId means = scale(op, "aten::div.Scalar", sums, static_cast<double>(rows.all));
    if (norm.has_mean) inner = binary(op, "aten::sub.Tensor", inner, element(op, means, 0));
    const BufferId along = norm.has_mean ? element(op, means, 1) : means;
    const BufferId left = add_product(op, inner, normal, along, -1, inner);
    give_seen_as(op, 0, binary(op, "aten::mul.Tensor", left, rstd));
  }
  give_weight_gradients(op, grad, seen_as(op, normal, shape));
}

bool takes_norm(const graph::Graph& graph, const graph::Op& op, const graph::Strategy&) {
  return is_single_or_double(graph, op.outputs.back());
}

}  // namespace

Rewrites norms_rewrites() {
  static constexpr Rewrite kWritten[] = {
      {"aten::native_layer_norm", takes_norm, write_norm},
      {"aten::_fused_rms_norm", takes_norm, write_norm},
      {"aten::native_group_norm", takes_norm, write_norm},
      {"aten::native_layer_norm_backward", takes_norm, write_norm_backward},
      {"aten::_fused_rms_norm_backward", takes_norm, write_norm_backward},
      {"aten::native_group_norm_backward", takes_norm, write_norm_backward},
  };
  return kWritten;
}

}  // namespace motley::synth
