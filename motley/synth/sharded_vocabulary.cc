// Operators over a vocabulary (rows of a table, classes of a loss) of which each device has a part.

#include <limits>
#include <utility>

#include "motley/graph/work.h"
#include "motley/synth/sharded_operators.h"

namespace motley::synth {

using graph::Form;
using program::Argument;
using program::ArgumentList;
using program::Instruction;
using program::KeywordArgument;
using program::NumberArgument;

namespace {

Argument none() { return {program::NoneArgument{}}; }
Argument dtype_argument(DType dtype) {
  return {KeywordArgument{"dtype", std::string(dtype_name(dtype))}};
}
Argument local_device() { return {KeywordArgument{"device", "local"}}; }

std::vector<std::int64_t> with_size(std::vector<std::int64_t> shape, std::int64_t dim,
                                    std::int64_t size) {
  shape[static_cast<std::size_t>(dim)] = size;
  return shape;
}

constexpr std::int64_t kClassDim = 1, kNoReduction = 0, kMeanReduction = 1;

}  // namespace

BufferId ShardedOperators::call(OpId origin, std::string op, std::string overload,
                                ArgumentList arguments, DType dtype,
                                std::vector<std::int64_t> shape) {
  Instruction made = make_named(std::move(op), origin);
  made.overload = std::move(overload);
  made.arguments = std::move(arguments);
  const BufferId base = graph::is_view(made.op) ? first_operand(made.arguments) : BufferId();
  const BufferId result = builder_.add_temporary(dtype, std::move(shape), base);
  made.outputs = {result};
  builder_.compute(std::move(made));
  return result;
}

BufferId ShardedOperators::zeros(OpId origin, DType dtype, std::vector<std::int64_t> shape) {
  const Argument sizes = integer_list(shape);
  return call(origin, "aten::zeros", "",
              {sizes, dtype_argument(dtype), none(), local_device(), none()}, dtype,
              std::move(shape));
}

std::pair<std::int64_t, std::int64_t> ShardedOperators::own_classes(const Form& form) {
  return {begin(form.extent) * form.inner, own(form.extent) * form.inner};
}

ShardedOperators::LocalIds ShardedOperators::local_ids(OpId origin, BufferId ids,
                                                       std::int64_t first, std::int64_t count,
                                                       std::int64_t spare,
                                                       std::optional<std::int64_t> ignored) {
  const program::Buffer like = builder_.buffer(ids);
  const auto compare = [&](std::string op, BufferId of, std::int64_t with) {
    return call(origin, std::move(op), "Scalar", {{of}, number_argument(with)}, DType::kBool,
                like.shape);
  };
  const auto either = [&](BufferId a, BufferId b) {
    return call(origin, "aten::logical_or", "", {{a}, {b}}, DType::kBool, like.shape);
  };
  LocalIds local;
  local.shape = like.shape;
  const BufferId shifted =
      call(origin, "aten::sub", "Scalar", {{ids}, number_argument(first), {std::int64_t{1}}},
           like.dtype, like.shape);
  local.outside = either(compare("aten::lt", shifted, 0), compare("aten::ge", shifted, count));
  if (ignored) local.outside = either(local.outside, compare("aten::eq", ids, *ignored));
  local.rows = call(origin, "aten::masked_fill", "Scalar",
                    {{shifted}, {local.outside}, number_argument(spare)}, like.dtype, like.shape);
  return local;
}

/// Rows of the own part of the table, zeros for ids outside it: a term of the result.
void ShardedOperators::emit_embedding(OpId id) {
  const graph::Op& op = graph_.op(id);
  const auto [first, count] = own_classes(sharding_.ops[id.index()].operands[0]);
  if (count == 0) return emit_nothing(id);
  const ArgumentList given = make_arguments(id);
  const LocalIds local =
      local_ids(id, std::get<BufferId>(given[1].value), first, count, 0, std::nullopt);
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  const std::vector<std::int64_t> shape = whole_shape(op.outputs[0]);
  const BufferId rows =
      call(id, "aten::embedding", "",
           {given[0], {local.rows}, {std::int64_t{-1}}, {false}, {false}}, dtype, shape);
  std::vector<std::int64_t> wide = local.shape;
  wide.push_back(1);
  const BufferId mask = call(id, "aten::unsqueeze", "", {{local.outside}, {std::int64_t{-1}}},
                             DType::kBool, std::move(wide));
  Instruction made = make_named("aten::masked_fill", id);
  made.overload = "Scalar";
  made.arguments = {{rows}, {mask}, {NumberArgument{0.0}}};
  made.outputs = {define(op.outputs[0])};
  builder_.compute(std::move(made));
}

/// (grad, ids, rows, padding_idx, ...): what belongs elsewhere goes to one more row, which is left
/// out.
void ShardedOperators::emit_embedding_backward(OpId id) {
  const graph::Op& op = graph_.op(id);
  const auto [first, count] = own_classes(sharding_.ops[id.index()].results[0]);
  const ArgumentList given = make_arguments(id);
  const auto padding = std::get<std::int64_t>(given[3].value);
  const LocalIds local = local_ids(id, std::get<BufferId>(given[1].value), first, count, count,
                                   padding >= 0 ? std::optional(padding) : std::nullopt);
  const std::vector<std::int64_t> shape = whole_shape(op.outputs[0]);
  const BufferId wide = call(id, op.name, op.overload,
                             {given[0], {local.rows}, {count + 1}, {std::int64_t{-1}}, {false}},
                             graph_.value(op.outputs[0]).dtype, with_size(shape, 0, count + 1));
  Instruction made = make_named("aten::slice", id);
  made.overload = "Tensor";
  made.arguments = {{wide}, {std::int64_t{0}}, {std::int64_t{0}}, {count}, {std::int64_t{1}}};
  made.outputs = {define(op.outputs[0], wide)};
  builder_.compute(std::move(made));
}

/// y = x - m - log(sum exp(x - m)), m the largest over all parts.
void ShardedOperators::emit_log_softmax(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Form& form = sharding_.ops[id.index()].operands[0];
  const ArgumentList given = make_arguments(id);
  const std::int64_t dim = form.dim, ranks = static_cast<std::int64_t>(sharding_.devices.size());
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  const std::vector<std::int64_t> shape = local_shape(op.outputs[0], form);
  const std::vector<std::int64_t> thin = with_size(shape, dim, 1);
  std::int64_t elements = 1;
  for (const std::int64_t size : thin) elements *= size;
  const BufferId own_most =
      own(form.extent) > 0
          ? call(id, "aten::amax", "", {given[0], integer_list({dim}), {true}}, dtype, thin)
          : call(id, "aten::full", "",
                 {integer_list(thin),
                  {-std::numeric_limits<double>::infinity()},
                  dtype_argument(dtype),
                  none(),
                  local_device(),
                  none()},
                 dtype, thin);
  const BufferId flat = cut(own_most, {1, elements, 1}, {elements}, op.module);
  const BufferId all =
      exchange("motley::all_gather", flat,
               {integers(std::vector<std::int64_t>(static_cast<std::size_t>(ranks), elements))},
               ranks * elements, op.module);
  const BufferId rows =
      join(all, {1, ranks * elements, 1}, {ranks * elements}, {ranks, elements}, op.module);
  const BufferId most_flat =
      call(id, "aten::amax", "", {{rows}, integer_list({0}), {false}}, dtype, {elements});
  const BufferId most = join(most_flat, {1, elements, 1}, {elements}, thin, op.module);
  const BufferId below =
      call(id, "aten::sub", "Tensor", {given[0], {most}, {std::int64_t{1}}}, dtype, shape);
  const BufferId powers = call(id, "aten::exp", "", {{below}}, dtype, shape);
  const BufferId sum = call(id, "aten::sum", "dim_IntList",
                            {{powers}, integer_list({dim}), {true}, none()}, dtype, thin);
  builder_.all_reduce(sum, op.module);
  const BufferId log = call(id, "aten::log", "", {{sum}}, dtype, thin);
  Instruction made = make_named("aten::sub", id);
  made.overload = "Tensor";
  made.arguments = {{below}, {log}, {std::int64_t{1}}};
  made.outputs = {define(op.outputs[0])};
  builder_.compute(std::move(made));
}

/// (grad, y, dim, dtype): grad - exp(y) sum(grad).
void ShardedOperators::emit_log_softmax_backward(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Form& form = sharding_.ops[id.index()].operands[0];
  const ArgumentList given = make_arguments(id);
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  const std::vector<std::int64_t> shape = local_shape(op.outputs[0], form);
  const BufferId sum =
      call(id, "aten::sum", "dim_IntList", {given[0], integer_list({form.dim}), {true}, none()},
           dtype, with_size(shape, form.dim, 1));
  builder_.all_reduce(sum, op.module);
  const BufferId share = call(id, "aten::exp", "", {given[1]}, dtype, shape);
  const BufferId spread = call(id, "aten::mul", "Tensor", {{share}, {sum}}, dtype, shape);
  Instruction made = make_named("aten::sub", id);
  made.overload = "Tensor";
  made.arguments = {given[0], {spread}, {std::int64_t{1}}};
  made.outputs = {define(op.outputs[0])};
  builder_.compute(std::move(made));
}

BufferId ShardedOperators::target_weights(OpId id, BufferId weights, const LocalIds& local) {
  const DType dtype = builder_.buffer(weights).dtype;
  const BufferId picked = call(id, "aten::index", "Tensor",
                               {{weights}, {buffer_list({local.rows})}}, dtype, local.shape);
  return call(id, "aten::masked_fill", "Scalar", {{picked}, {local.outside}, {NumberArgument{0.0}}},
              dtype, local.shape);
}

/// (x, target, weight, reduction, ignore_index): the log-probabilities of targets that are here; a
/// term of the loss. Without weights all devices count all targets; with them each has those of the
/// targets that are here.
void ShardedOperators::emit_nll_classes(OpId id) {
  const graph::Op& op = graph_.op(id);
  const ArgumentList given = make_arguments(id);
  const auto [first, count] = own_classes(sharding_.ops[id.index()].operands[0]);
  const auto reduction = std::get<std::int64_t>(given[3].value);
  const auto* weights = std::get_if<BufferId>(&given[2].value);
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  BufferId loss, total;
  if (count > 0) {
    const LocalIds local = local_ids(id, std::get<BufferId>(given[1].value), first, count, 0,
                                     std::get<std::int64_t>(given[4].value));
    loss = negative_picks(id, std::get<BufferId>(given[0].value), local);
    if (weights != nullptr) {
      const BufferId worth = target_weights(id, *weights, local);
      loss = call(id, "aten::mul", "Tensor", {{loss}, {worth}}, dtype, local.shape);
      total = call(id, "aten::sum", "", {{worth}, none()}, dtype, {});
    }
    if (reduction != kNoReduction) loss = call(id, "aten::sum", "", {{loss}, none()}, dtype, {});
  } else {
    loss = zeros(id, dtype, whole_shape(op.outputs[0]));
    if (weights != nullptr) total = zeros(id, dtype, {});
  }
  if (weights != nullptr) builder_.all_reduce(total, op.module);
  if (weights == nullptr) total = label_count(id, Labels::kWhole);
  total = converted(total, graph_.value(op.outputs[1]).dtype, id);
  if (reduction == kMeanReduction && count > 0)
    loss = call(id, "aten::div", "Tensor", {{loss}, {total}}, dtype, {});
  buffers_[op.outputs[0].index()] = loss;
  buffers_[op.outputs[1].index()] = total;
}

/// -x at the targets that are here, 0 for the others.
BufferId ShardedOperators::negative_picks(OpId id, BufferId x, const LocalIds& local) {
  const DType dtype = builder_.buffer(x).dtype;
  std::vector<std::int64_t> thin = local.shape;
  thin.insert(thin.begin() + kClassDim, 1);
  const BufferId index = call(id, "aten::unsqueeze", "", {{local.rows}, {kClassDim}},
                              builder_.buffer(local.rows).dtype, thin);
  const BufferId picked =
      call(id, "aten::gather", "", {{x}, {kClassDim}, {index}, {false}}, dtype, thin);
  const BufferId narrow =
      call(id, "aten::squeeze", "dim", {{picked}, {kClassDim}}, dtype, local.shape);
  const BufferId here =
      call(id, "aten::masked_fill", "Scalar", {{narrow}, {local.outside}, {NumberArgument{0.0}}},
           dtype, local.shape);
  return call(id, "aten::neg", "", {{here}}, dtype, local.shape);
}

/// (grad, x, target, weight, reduction, ignore_index, total_weight): -grad (over the total weight,
/// for a mean) at the targets that are here, times their weights.
void ShardedOperators::emit_nll_classes_backward(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Form& form = sharding_.ops[id.index()].operands[1];
  const ArgumentList given = make_arguments(id);
  const auto [first, count] = own_classes(form);
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  const std::vector<std::int64_t> shape = local_shape(op.outputs[0], form);
  const BufferId nothing = zeros(id, dtype, shape);
  if (count == 0) {
    buffers_[op.outputs[0].index()] = nothing;
    return;
  }
  const LocalIds local = local_ids(id, std::get<BufferId>(given[2].value), first, count, 0,
                                   std::get<std::int64_t>(given[5].value));
  BufferId grad = std::get<BufferId>(given[0].value);
  if (std::get<std::int64_t>(given[4].value) == kMeanReduction)
    grad = call(id, "aten::div", "Tensor", {{grad}, given[6]}, dtype, {});
  grad = call(id, "aten::neg", "", {{grad}}, dtype, builder_.buffer(grad).shape);
  if (builder_.buffer(grad).shape.empty()) {
    grad = call(id, "aten::expand", "", {{grad}, integer_list(local.shape), {false}}, dtype,
                local.shape);
  }
  if (const auto* weights = std::get_if<BufferId>(&given[3].value))
    grad = call(id, "aten::mul", "Tensor", {{grad}, {target_weights(id, *weights, local)}}, dtype,
                local.shape);
  const BufferId here = call(id, "aten::masked_fill", "Scalar",
                             {{grad}, {local.outside}, {NumberArgument{0.0}}}, dtype, local.shape);
  std::vector<std::int64_t> thin = local.shape;
  thin.insert(thin.begin() + kClassDim, 1);
  const BufferId index = call(id, "aten::unsqueeze", "", {{local.rows}, {kClassDim}},
                              builder_.buffer(local.rows).dtype, thin);
  const BufferId values = call(id, "aten::unsqueeze", "", {{here}, {kClassDim}}, dtype, thin);
  Instruction made = make_named("aten::scatter", id);
  made.overload = "src";
  made.arguments = {{nothing}, {kClassDim}, {index}, {values}};
  made.outputs = {define(op.outputs[0])};
  builder_.compute(std::move(made));
}

}  // namespace motley::synth
