// Statistics over a dimension of which each device has a part: sums of what is here, their
// exchange, the rest. Layer, RMS and group norms, variances.

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "motley/graph/work.h"
#include "motley/synth/sharded_operators.h"

namespace motley::synth {

using program::Argument;
using program::ArgumentList;
using program::NumberArgument;
using Shape = std::vector<std::int64_t>;

namespace {

constexpr int kNone = -1;

/// Places of a norm's arguments; kNone: it has none. Results: y, mean, rstd, or the gradients of x,
/// weight, bias; without a mean there are no biases either.
struct Norm {
  std::string_view name;
  int grad, x, mean, rstd, weight, bias, eps;
  bool has_mean;
};
constexpr Norm kNorms[] = {
    {"aten::native_layer_norm", kNone, 0, kNone, kNone, 2, 3, 4, true},
    {"aten::_fused_rms_norm", kNone, 0, kNone, kNone, 2, kNone, 3, false},
    {"aten::native_group_norm", kNone, 0, kNone, kNone, 1, 2, 7, true},
    {"aten::native_layer_norm_backward", 0, 1, 3, 4, 5, 6, kNone, true},
    {"aten::_fused_rms_norm_backward", 0, 1, kNone, 3, 4, kNone, kNone, false},
    {"aten::native_group_norm_backward", 0, 1, 2, 3, 4, kNone, kNone, true},
};

const Norm* find_norm(std::string_view name) {
  const auto* found = std::find_if(std::begin(kNorms), std::end(kNorms),
                                   [&](const Norm& n) { return n.name == name; });
  return found == std::end(kNorms) ? nullptr : found;
}

bool is_variance(std::string_view name) {
  return name == "aten::var" || name == "aten::std" || name == "aten::var_mean";
}

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

BufferId buffer_at(const ArgumentList& arguments, int place) {
  if (place < 0) return BufferId();
  const auto* id = std::get_if<BufferId>(&arguments[static_cast<std::size_t>(place)].value);
  return id == nullptr ? BufferId() : *id;
}

/// Dimensions that a reduction's argument names; all, if none.
Shape named_dims(const graph::Argument& argument, std::size_t rank) {
  Shape dims;
  const auto add = [&](const graph::Argument& each) {
    const auto* dim = std::get_if<std::int64_t>(&each.value);
    if (dim != nullptr) dims.push_back(*dim < 0 ? *dim + static_cast<std::int64_t>(rank) : *dim);
  };
  add(argument);
  if (const auto* list = std::get_if<graph::ArgumentList>(&argument.value))
    for (const graph::Argument& each : *list) add(each);
  if (dims.empty()) {
    dims.resize(rank);
    std::iota(dims.begin(), dims.end(), 0);
  }
  return dims;
}

/// What is taken off the number of elements: 1, if the argument is none.
double correction_of(const graph::Argument& argument) {
  if (const auto* whole = std::get_if<std::int64_t>(&argument.value))
    return static_cast<double>(*whole);
  const auto* number = std::get_if<double>(&argument.value);
  return number == nullptr ? 1 : *number;
}

}  // namespace

bool has_statistics(const graph::Op& op) {
  return find_norm(op.name) != nullptr || (is_variance(op.name) && op.overload == "correction");
}

void ShardedOperators::emit_statistics(OpId id) {
  if (is_variance(graph_.op(id).name)) return emit_variance(id);
  const Norm& norm = *find_norm(graph_.op(id).name);
  norm.grad == kNone ? emit_norm(id) : emit_norm_backward(id);
}

BufferId ShardedOperators::binary(OpId id, std::string op, BufferId a, BufferId b) {
  const Shape left = builder_.buffer(a).shape, right = builder_.buffer(b).shape;
  Shape wide = left.size() < right.size() ? right : left;
  for (std::size_t d = 1; d <= std::min(left.size(), right.size()); ++d)
    if (left[left.size() - d] == 1 || right[right.size() - d] == 1)
      wide[wide.size() - d] = std::min(left[left.size() - d], right[right.size() - d]) == 0
                                  ? 0
                                  : std::max(left[left.size() - d], right[right.size() - d]);
  ArgumentList arguments{{a}, {b}};
  if (op == "aten::sub") arguments.push_back({std::int64_t{1}});
  return call(id, std::move(op), "Tensor", std::move(arguments), builder_.buffer(a).dtype,
              std::move(wide));
}

/// a + factor * b * c, as wide as `like`.
BufferId ShardedOperators::add_product(OpId id, BufferId a, BufferId b, BufferId c,
                                       std::int64_t factor, BufferId like) {
  return call(id, "aten::addcmul", "", {{a}, {b}, {c}, {factor}}, builder_.buffer(like).dtype,
              builder_.buffer(like).shape);
}

BufferId ShardedOperators::scale(OpId id, std::string op, BufferId x, double by) {
  return call(id, std::move(op), "Scalar", {{x}, {NumberArgument{by}}}, builder_.buffer(x).dtype,
              builder_.buffer(x).shape);
}

BufferId ShardedOperators::seen_as(OpId id, BufferId x, Shape shape) {
  return call(id, "aten::view", "", {{x}, integer_list(shape)}, builder_.buffer(x).dtype, shape);
}

/// Sum over some dimensions, which stay with size 1, of what is here.
BufferId ShardedOperators::sum_over(OpId id, BufferId x, const Shape& dims) {
  Shape thin = builder_.buffer(x).shape;
  for (const std::int64_t dim : dims) thin[static_cast<std::size_t>(dim)] = 1;
  return call(id, "aten::sum", "dim_IntList",
              {{x}, integer_list(dims), {true}, {program::NoneArgument{}}},
              builder_.buffer(x).dtype, std::move(thin));
}

BufferId ShardedOperators::stacked(OpId id, BufferId a, BufferId b) {
  Shape shape = builder_.buffer(a).shape;
  shape.insert(shape.begin(), 2);
  return call(id, "aten::stack", "", {{buffer_list({a, b})}, {std::int64_t{0}}},
              builder_.buffer(a).dtype, std::move(shape));
}

BufferId ShardedOperators::element(OpId id, BufferId x, std::int64_t index) {
  Shape shape = builder_.buffer(x).shape;
  shape.erase(shape.begin());
  return call(id, "aten::select", "int", {{x}, {std::int64_t{0}}, {index}},
              builder_.buffer(x).dtype, std::move(shape));
}

/// The value of one of the operator's results, of another shape.
void ShardedOperators::define_seen_as(OpId id, ValueId result, BufferId x) {
  program::Instruction made = make_named("aten::view", id);
  const BufferId view = define(result, x);
  made.arguments = {{x}, integer_list(builder_.buffer(view).shape)};
  made.outputs = {view};
  builder_.compute(std::move(made));
}

/// Each device adds n * mean and n * (variance + mean^2) of its n elements, in double precision.
ShardedOperators::Moments ShardedOperators::moments(OpId id, BufferId x, const Shape& dims,
                                                    std::int64_t all) {
  const DType dtype = builder_.buffer(x).dtype;
  Shape thin = builder_.buffer(x).shape;
  std::int64_t here = 1;
  for (const std::int64_t dim : dims) {
    here *= thin[static_cast<std::size_t>(dim)];
    thin[static_cast<std::size_t>(dim)] = 1;
  }
  BufferId sums;
  if (here > 0) {
    const BufferId variance = builder_.add_temporary(dtype, thin);
    const BufferId mean = builder_.add_temporary(dtype, thin);
    program::Instruction local = make_named("aten::var_mean", id);
    local.overload = "correction";
    local.arguments = {{x}, integer_list(dims), {NumberArgument{std::int64_t{0}}}, {true}};
    local.outputs = {variance, mean};
    builder_.compute(std::move(local));
    const BufferId wide = converted(mean, DType::kF64, id);
    const BufferId squares =
        add_product(id, converted(variance, DType::kF64, id), wide, wide, 1, wide);
    sums = scale(id, "aten::mul", stacked(id, wide, squares), static_cast<double>(here));
  } else {
    Shape both = thin;
    both.insert(both.begin(), 2);
    sums = zeros(id, DType::kF64, both);
  }
  builder_.all_reduce(sums, graph_.op(id).module);
  const BufferId means = scale(id, "aten::div", sums, static_cast<double>(all));
  const BufferId mean = element(id, means, 0);
  const BufferId spread = add_product(id, element(id, means, 1), mean, mean, -1, mean);
  const BufferId variance =
      call(id, "aten::clamp_min", "", {{spread}, {NumberArgument{0.0}}}, DType::kF64, thin);
  return {mean, variance};
}

/// x seen as [rows, elements of a row here], a row for each mean.
ShardedOperators::Rows ShardedOperators::rows_of(OpId id, BufferId x, ValueId x_value,
                                                 ValueId statistic) {
  const std::int64_t rows = product(whole_shape(statistic));
  const std::int64_t here = builder_.buffer(x).elements() / std::max<std::int64_t>(1, rows);
  return {seen_as(id, x, {rows, here}), rows, here,
          sum_of_elements(x_value) / std::max<std::int64_t>(1, rows)};
}

/// Weights as they are multiplied with x: those of group norms belong to dimension 1.
BufferId ShardedOperators::along_x(OpId id, BufferId weight, std::size_t rank) {
  if (graph_.op(id).name.find("group_norm") == std::string::npos) return weight;
  Shape shape(rank - 1, 1);
  shape[0] = builder_.buffer(weight).elements();
  return seen_as(id, weight, std::move(shape));
}

void ShardedOperators::emit_norm(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Norm& norm = *find_norm(op.name);
  const ArgumentList given = make_arguments(id);
  const BufferId x = buffer_at(given, norm.x);
  const DType dtype = builder_.buffer(x).dtype;
  const Rows rows = rows_of(id, x, std::get<ValueId>(op.arguments[0].value), op.outputs.back());
  const Argument& eps = given[static_cast<std::size_t>(norm.eps)];
  const bool has_eps = std::holds_alternative<double>(eps.value);
  const double least = dtype == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                            : std::numeric_limits<float>::epsilon();
  BufferId spread, normal = rows.x;
  if (norm.has_mean) {
    const Moments found = moments(id, rows.x, {1}, rows.all);
    const BufferId mean = converted(found.mean, dtype, id);
    define_seen_as(id, op.outputs[1], mean);
    normal = binary(id, "aten::sub", rows.x, mean);
    spread = found.variance;
  } else {
    const BufferId sum = sum_over(id, binary(id, "aten::mul", rows.x, rows.x), {1});
    builder_.all_reduce(sum, op.module);
    spread = scale(id, "aten::div", sum, static_cast<double>(rows.all));
  }
  const program::Buffer like = builder_.buffer(spread);
  const BufferId raised =
      call(id, "aten::add", "Scalar",
           {{spread}, has_eps ? eps : Argument{least}, {std::int64_t{1}}}, like.dtype, like.shape);
  const BufferId rstd =
      converted(call(id, "aten::rsqrt", "", {{raised}}, like.dtype, like.shape), dtype, id);
  define_seen_as(id, op.outputs.back(), rstd);
  normal = binary(id, "aten::mul", normal, rstd);
  emit_weighed(id, normal, buffer_at(given, norm.weight), buffer_at(given, norm.bias));
}

/// y = normal * weight + bias.
void ShardedOperators::emit_weighed(OpId id, BufferId normal, BufferId weight, BufferId bias) {
  const ValueId y = graph_.op(id).outputs[0];
  if (weight.is_none()) return define_seen_as(id, y, normal);
  const Shape shape = local_shape(y, step_.homes[y.index()]);
  const BufferId seen = seen_as(id, normal, shape);
  const BufferId weights = along_x(id, weight, shape.size());
  const BufferId biases = bias.is_none() ? bias : along_x(id, bias, shape.size());
  program::Instruction made = make_named(bias.is_none() ? "aten::mul" : "aten::addcmul", id);
  if (bias.is_none()) {
    made.overload = "Tensor";
    made.arguments = {{seen}, {weights}};
  } else {
    made.arguments = {{biases}, {seen}, {weights}, {std::int64_t{1}}};
  }
  made.outputs = {define(y)};
  builder_.compute(std::move(made));
}

/// With n the normalised x and g = grad * weight: rstd * (g - mean(g) - n * mean(g * n)).
void ShardedOperators::emit_norm_backward(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Norm& norm = *find_norm(op.name);
  const ArgumentList given = make_arguments(id);
  const BufferId x = buffer_at(given, norm.x), grad = buffer_at(given, norm.grad);
  const BufferId weight = buffer_at(given, norm.weight);
  const Shape shape = builder_.buffer(x).shape;
  const auto statistic = std::get<ValueId>(op.arguments[static_cast<std::size_t>(norm.rstd)].value);
  const auto x_value = std::get<ValueId>(op.arguments[static_cast<std::size_t>(norm.x)].value);
  const Rows rows = rows_of(id, x, x_value, statistic);
  const BufferId rstd = seen_as(id, buffer_at(given, norm.rstd), {rows.count, 1});
  BufferId normal = rows.x;
  if (norm.has_mean)
    normal =
        binary(id, "aten::sub", normal, seen_as(id, buffer_at(given, norm.mean), {rows.count, 1}));
  normal = binary(id, "aten::mul", normal, rstd);
  if (graph_.value(op.outputs[0]).dtype == DType::kNone) {
    define(op.outputs[0]);
  } else {
    const BufferId weighed =
        weight.is_none() ? grad : binary(id, "aten::mul", grad, along_x(id, weight, shape.size()));
    BufferId inner = seen_as(id, weighed, {rows.count, rows.here});
    BufferId sums = sum_over(id, binary(id, "aten::mul", inner, normal), {1});
    if (norm.has_mean) sums = stacked(id, sum_over(id, inner, {1}), sums);
    builder_.all_reduce(sums, op.module);
    const BufferId means = scale(id, "aten::div", sums, static_cast<double>(rows.all));
    if (norm.has_mean) inner = binary(id, "aten::sub", inner, element(id, means, 0));
    const BufferId along = norm.has_mean ? element(id, means, 1) : means;
    const BufferId left = add_product(id, inner, normal, along, -1, inner);
    define_seen_as(id, op.outputs[0], binary(id, "aten::mul", left, rstd));
  }
  emit_weight_gradients(id, grad, seen_as(id, normal, shape));
}

/// Sums of grad * normal and of grad over the dimensions that weights do not have.
void ShardedOperators::emit_weight_gradients(OpId id, BufferId grad, BufferId normal) {
  const graph::Op& op = graph_.op(id);
  const bool is_group = op.name.find("group_norm") != std::string::npos;
  for (std::size_t r = 1; r < op.outputs.size(); ++r) {
    const ValueId result = op.outputs[r];
    if (graph_.value(result).dtype == DType::kNone) {
      define(result);
      continue;
    }
    const std::size_t rank = builder_.buffer(grad).shape.size();
    Shape dims;
    for (std::size_t d = 0; d < (is_group ? rank : rank - graph_.value(result).shape.size()); ++d)
      if (!is_group || d != 1) dims.push_back(static_cast<std::int64_t>(d));
    program::Instruction made = make_named("aten::sum", id);
    made.overload = "dim_IntList";
    made.arguments = {{r == 1 ? binary(id, "aten::mul", grad, normal) : grad},
                      integer_list(dims),
                      {false},
                      {program::NoneArgument{}}};
    made.outputs = {define(result)};
    builder_.compute(std::move(made));
  }
}

/// var, std, var_mean (x, dims, correction, keepdim)
void ShardedOperators::emit_variance(OpId id) {
  const graph::Op& op = graph_.op(id);
  const ArgumentList given = make_arguments(id);
  const BufferId x = buffer_at(given, 0);
  const Shape whole = whole_shape(std::get<ValueId>(op.arguments[0].value));
  const Shape dims = named_dims(op.arguments[1], whole.size());
  std::int64_t all = 1;
  for (const std::int64_t dim : dims) all *= whole[static_cast<std::size_t>(dim)];
  const Moments found = moments(id, x, dims, all);
  const auto count = static_cast<double>(all);
  const double left = std::max(0.0, count - correction_of(op.arguments[2]));
  BufferId spread = scale(id, "aten::mul", found.variance, count / left);
  if (op.name == "aten::std") {
    const program::Buffer like = builder_.buffer(spread);
    spread = call(id, "aten::sqrt", "", {{spread}}, like.dtype, like.shape);
  }
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  define_seen_as(id, op.outputs[0], converted(spread, dtype, id));
  if (op.outputs.size() > 1) define_seen_as(id, op.outputs[1], converted(found.mean, dtype, id));
}

}  // namespace motley::synth
