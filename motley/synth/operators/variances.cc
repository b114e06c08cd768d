// var, std, var_mean (x, dims, correction, keepdim) over dimensions that are split over devices.

#include <algorithm>
#include <numeric>

#include "motley/synth/operators/arithmetic.h"
#include "motley/synth/operators/rewrite.h"

namespace motley::synth {
namespace {

/// Returns the dimensions that a reduction's argument names, or all if it names none.
Shape named_dims(const graph::SymbolicArgument& argument, std::size_t rank) {
  Shape dims;
  const auto add = [&](const graph::SymbolicArgument& each) {
    const auto* dim = std::get_if<std::int64_t>(&each.value);
    if (dim != nullptr) dims.push_back(*dim < 0 ? *dim + static_cast<std::int64_t>(rank) : *dim);
  };
  add(argument);
  if (const auto* list = std::get_if<graph::SymbolicArguments>(&argument.value))
    for (const graph::SymbolicArgument& each : *list) add(each);
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  return dims;
}

/// Returns the number subtracted from the element count: 1 if the argument is none.
double correction_of(const graph::SymbolicArgument& argument) {
  if (const auto* whole = std::get_if<std::int64_t>(&argument.value))
    return static_cast<double>(*whole);
  const auto* number = std::get_if<double>(&argument.value);
  return number == nullptr ? 1 : *number;
}

void write_variance(RankOperator& op) {
  const BufferId x = buffer_at(op.arguments(), 0);
  const Shape whole = op.rank().whole_shape(op.given<ValueId>(0));
  const Shape dims = named_dims(op.op().arguments[1], whole.size());
  std::int64_t all = 1;
  for (const std::int64_t dim : dims) all *= whole[static_cast<std::size_t>(dim)];
  const Moments found = find_moments(op, x, dims, all);
  const auto count = static_cast<double>(all);
  const double left = std::max(0.0, count - correction_of(op.op().arguments[2]));
  BufferId spread = scale(op, "aten::mul.Scalar", found.variance, count / left);
  if (op.op().name == "aten::std") spread = op.call_like(spread, "aten::sqrt", {{spread}});
  give_seen_as(op, 0, op.in_dtype(spread, op.dtype(0)));
  if (op.op().outputs.size() > 1) give_seen_as(op, 1, op.in_dtype(found.mean, op.dtype(0)));
}

bool takes_correction(const graph::Graph& graph, const graph::Op& op, const graph::Strategy&) {
  if (op.overload != "correction" || op.arguments.empty()) return false;
  const auto* x = std::get_if<ValueId>(&op.arguments[0].value);
  return x != nullptr && is_single_or_double(graph, *x);
}

}  // namespace

Rewrites variances_rewrites() {
  static constexpr Rewrite kVariances[] = {
      {"aten::var", takes_correction, write_variance},
      {"aten::std", takes_correction, write_variance},
      {"aten::var_mean", takes_correction, write_variance},
  };
  return kVariances;
}

}  // namespace motley::synth
