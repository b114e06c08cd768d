// nll_loss (x, target, weight, reduction, ignore_index) -> loss, total weight; split by samples or
// by classes.

#include "motley/synth/operators/losses.h"

#include <utility>

#include "motley/synth/operators/arithmetic.h"
#include "motley/synth/operators/rewrite.h"
#include "motley/synth/operators/vocabulary.h"

namespace motley::synth {

BufferId count_labels(RankOperator& op, Labels kind) {
  Arguments labels(2, none());
  std::size_t operand = 1;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (const auto* value = std::get_if<ValueId>(&op.op().arguments[i + 1].value))
      labels[i].value = op.rank().in_form(*value, op.operand_form(operand++));
  const auto ignored = op.given<std::int64_t>(4);
  BufferId& count = op.rank().label_count(
      {buffer_at(labels, 0), buffer_at(labels, 1), ignored, kind == Labels::kSpread});
  if (!count.is_none()) return count;
  labels.push_back({ignored});
  count = op.call("motley::label_count", std::move(labels), DType::kF32, {});
  if (kind == Labels::kSpread) op.builder().all_reduce(count, "labels");
  return count;
}

namespace {

using graph::Graph;
using graph::Op;
using graph::Strategy;

constexpr std::int64_t kClassDim = 1;

bool takes_samples(const Graph&, const Op&, const Strategy& strategy) {
  return splits_samples(strategy.operands[0]);
}

/// `X`: position of x among arguments and operands.
template <std::size_t X>
bool takes_classes(const Graph& graph, const Op& op, const Strategy& strategy) {
  const auto x = std::get<ValueId>(op.arguments[X].value);
  return !splits_samples(strategy.operands[X]) && is_consecutive(strategy.operands[X]) &&
         graph.value(x).shape.size() > 1 && is_single_or_double(graph, x);
}

/// loss = local sum / count over all devices; the backward pass uses the count as well.
void write_mean(RankOperator& op) {
  Arguments given = op.arguments();
  const BufferId counted = count_labels(op, Labels::kSpread);
  given[3].value = kSumReduction;
  const BufferId sum = op.builder().add_temporary(op.dtype(0), {});
  const BufferId unused = op.builder().add_temporary(op.dtype(0), {});
  op.write(op.op().full_name(), std::move(given), {sum, unused});
  const BufferId count = op.in_dtype(counted, op.dtype(1));
  op.set(1, count);
  op.give(0, "aten::div.Tensor", {{sum}, {count}});
}

/// Returns -x at the local targets, 0 for the others.
BufferId negative_picks(RankOperator& op, BufferId x, const LocalIds& local) {
  const DType dtype = op.builder().buffer(x).dtype;
  const BufferId index = unsqueezed(op, local.rows, kClassDim);
  const BufferId picked = op.call("aten::gather", {{x}, {kClassDim}, {index}, {false}}, dtype,
                                  op.builder().buffer(index).shape);
  const BufferId narrow = op.call("aten::squeeze.dim", {{picked}, {kClassDim}}, dtype,
                                  op.builder().buffer(local.rows).shape);
  const BufferId here = filled(op, narrow, local.outside, number(0.0));
  return op.call_like(here, "aten::neg", {{here}});
}

/// Returns the weights of the local targets, 0 for the others.
BufferId target_weights(RankOperator& op, BufferId weights, const LocalIds& local) {
  const BufferId picked =
      op.call("aten::index.Tensor", {{weights}, {buffer_list({local.rows})}},
              op.builder().buffer(weights).dtype, op.builder().buffer(local.rows).shape);
  return filled(op, picked, local.outside, number(0.0));
}

BufferId sum_of_all(RankOperator& op, BufferId x) {
  return op.call("aten::sum", {{x}, none()}, op.dtype(0), {});
}

/// Writes a term of the loss from the log-probabilities of local targets. Without weights all
/// devices count all targets; with weights each device sums those of its local targets.
void write_classes(RankOperator& op) {
  const Arguments given = op.arguments();
  const Range own = op.rank().own_range(op.operand_form(0));
  const auto reduction = op.given<std::int64_t>(3);
  const BufferId weights = buffer_at(given, 2);
  BufferId loss, total;
  if (own.count > 0) {
    const LocalIds local =
        find_local_ids(op, buffer_at(given, 1), own, 0, op.given<std::int64_t>(4));
    loss = negative_picks(op, buffer_at(given, 0), local);
    if (!weights.is_none()) {
      const BufferId worth = target_weights(op, weights, local);
      loss = binary(op, "aten::mul.Tensor", loss, worth);
      total = sum_of_all(op, worth);
    }
    if (reduction != kNoReduction) loss = sum_of_all(op, loss);
  } else {
    loss = op.zeros(op.dtype(0), op.rank().whole_shape(op.op().outputs[0]));
    if (!weights.is_none()) total = op.zeros(op.dtype(0), {});
  }
  if (weights.is_none())
    total = count_labels(op, Labels::kWhole);
  else
    op.all_reduce(total);
  total = op.in_dtype(total, op.dtype(1));
  if (reduction == kMeanReduction && own.count > 0)
    loss = op.call("aten::div.Tensor", {{loss}, {total}}, op.dtype(0), {});
  op.set(0, loss);
  op.set(1, total);
}

/// (grad, x, target, weight, reduction, ignore_index, total_weight): -grad (over the total weight,
/// for a mean) at the local targets, times their weights.
void write_classes_backward(RankOperator& op) {
  const Arguments given = op.arguments();
  const Range own = op.rank().own_range(op.operand_form(1));
  const DType dtype = op.dtype(0);
  const BufferId nothing = op.zeros(dtype, op.result_shape(0));
  if (own.count == 0) return op.set(0, nothing);
  const LocalIds local = find_local_ids(op, buffer_at(given, 2), own, 0, op.given<std::int64_t>(5));
  const Shape shape = op.builder().buffer(local.rows).shape;
  BufferId grad = buffer_at(given, 0);
  if (op.given<std::int64_t>(4) == kMeanReduction)
    grad = op.call("aten::div.Tensor", {{grad}, given[6]}, dtype, {});
  grad = op.call_like(grad, "aten::neg", {{grad}});
  if (op.builder().buffer(grad).shape.empty())
    grad = op.call("aten::expand", {{grad}, {integers(shape)}, {false}}, dtype, shape);
  if (const BufferId weights = buffer_at(given, 3); !weights.is_none())
    grad = binary(op, "aten::mul.Tensor", grad, target_weights(op, weights, local));
  const BufferId here = filled(op, grad, local.outside, number(0.0));
  const BufferId index = unsqueezed(op, local.rows, kClassDim);
  const BufferId values = unsqueezed(op, here, kClassDim);
  op.give(0, "aten::scatter.src", {{nothing}, {kClassDim}, {index}, {values}});
}

}  // namespace

Rewrites losses_rewrites() {
  static constexpr Rewrite kLosses[] = {
      {"aten::nll_loss_forward", takes_samples, write_mean},
      {"aten::nll_loss_forward", takes_classes<0>, write_classes},
      {"aten::nll_loss2d_forward", takes_samples, write_mean},
      {"aten::nll_loss2d_forward", takes_classes<0>, write_classes},
      {"aten::nll_loss_backward", takes_classes<1>, write_classes_backward},
      {"aten::nll_loss2d_backward", takes_classes<1>, write_classes_backward},
  };
  return kLosses;
}

}  // namespace motley::synth
