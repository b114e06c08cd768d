#include "motley/synth/operators/arithmetic.h"

#include <algorithm>
#include <utility>

namespace motley::synth {

BufferId binary(RankOperator& op, std::string_view name, BufferId a, BufferId b) {
  const Shape left = op.builder().buffer(a).shape, right = op.builder().buffer(b).shape;
  Shape wide = left.size() < right.size() ? right : left;
  for (std::size_t d = 1; d <= std::min(left.size(), right.size()); ++d) {
    const std::int64_t one = left[left.size() - d], other = right[right.size() - d];
    wide[wide.size() - d] = one == 1 ? other : one;
  }
  Arguments arguments{{a}, {b}};
  if (name == "aten::sub.Tensor") arguments.push_back({std::int64_t{1}});
  return op.call(name, std::move(arguments), op.builder().buffer(a).dtype, std::move(wide));
}

BufferId add_product(RankOperator& op, BufferId a, BufferId b, BufferId c, std::int64_t factor,
                     BufferId like) {
  return op.call_like(like, "aten::addcmul", {{a}, {b}, {c}, {factor}});
}

BufferId scale(RankOperator& op, std::string_view name, BufferId x, double by) {
  return op.call_like(x, name, {{x}, number(by)});
}

BufferId seen_as(RankOperator& op, BufferId x, const Shape& shape) {
  return op.call("aten::view", {{x}, {integers(shape)}}, op.builder().buffer(x).dtype, shape);
}

BufferId unsqueezed(RankOperator& op, BufferId x, std::int64_t dim) {
  Shape shape = op.builder().buffer(x).shape;
  shape.insert(dim < 0 ? shape.end() : shape.begin() + dim, 1);
  return op.call("aten::unsqueeze", {{x}, {dim}}, op.builder().buffer(x).dtype, std::move(shape));
}

BufferId sum_over(RankOperator& op, BufferId x, const Shape& dims) {
  return op.call("aten::sum.dim_IntList", {{x}, {integers(dims)}, {true}, none()},
                 op.builder().buffer(x).dtype, thinned(op.builder().buffer(x).shape, dims));
}

BufferId stacked(RankOperator& op, BufferId a, BufferId b) {
  Shape shape = op.builder().buffer(a).shape;
  shape.insert(shape.begin(), 2);
  return op.call("aten::stack", {{buffer_list({a, b})}, {std::int64_t{0}}},
                 op.builder().buffer(a).dtype, std::move(shape));
}

BufferId element(RankOperator& op, BufferId x, std::int64_t index) {
  Shape shape = op.builder().buffer(x).shape;
  shape.erase(shape.begin());
  return op.call("aten::select.int", {{x}, {std::int64_t{0}}, {index}},
                 op.builder().buffer(x).dtype, std::move(shape));
}

BufferId filled(RankOperator& op, BufferId x, BufferId mask, program::Argument with) {
  return op.call_like(x, "aten::masked_fill.Scalar", {{x}, {mask}, std::move(with)});
}

void give_seen_as(RankOperator& op, std::size_t result, BufferId x) {
  op.give(result, "aten::view", {{x}, {integers(op.result_shape(result))}});
}

Shape thinned(Shape shape, const Shape& dims) {
  for (const std::int64_t dim : dims) shape[static_cast<std::size_t>(dim)] = 1;
  return shape;
}

Moments find_moments(RankOperator& op, BufferId x, const Shape& dims, std::int64_t all) {
  const program::Buffer about = op.builder().buffer(x);
  const Shape thin = thinned(about.shape, dims);
  std::int64_t here = 1;
  for (const std::int64_t dim : dims) here *= about.shape[static_cast<std::size_t>(dim)];
  BufferId sums;
  if (here > 0) {
    const BufferId variance = op.builder().add_temporary(about.dtype, thin);
    const BufferId mean = op.builder().add_temporary(about.dtype, thin);
    op.write("aten::var_mean.correction", {{x}, {integers(dims)}, number(0), {true}},
             {variance, mean});
    const BufferId wide = op.in_dtype(mean, DType::kF64);
    const BufferId wide_variance = op.in_dtype(variance, DType::kF64);
    const BufferId squares = add_product(op, wide_variance, wide, wide, 1, wide);
    sums = scale(op, "aten::mul.Scalar", stacked(op, wide, squares), static_cast<double>(here));
  } else {
    Shape both = thin;
    both.insert(both.begin(), 2);
    sums = op.zeros(DType::kF64, both);
  }
  op.all_reduce(sums);
  const BufferId means = scale(op, "aten::div.Scalar", sums, static_cast<double>(all));
  const BufferId mean = element(op, means, 0);
  const BufferId spread = add_product(op, element(op, means, 1), mean, mean, -1, mean);
  return {mean, op.call_like(spread, "aten::clamp_min", {{spread}, number(0.0)})};
}

}  // namespace motley::synth
