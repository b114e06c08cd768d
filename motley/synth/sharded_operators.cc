#include "motley/synth/sharded_operators.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "motley/graph/work.h"
#include "motley/synth/accumulation.h"

namespace motley::synth {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Slab;
using graph::Strategy;
using program::Argument;
using program::ArgumentList;
using program::Instruction;
using program::NumberArgument;

namespace {

constexpr std::int64_t kSumReduction = 2;

bool is_named(const graph::Op& op, std::string_view name) { return op.name == name; }

bool is_batch_norm(const graph::Op& op) {
  return is_named(op, "aten::native_batch_norm") ||
         is_named(op, "aten::_native_batch_norm_legit") ||
         is_named(op, "aten::_native_batch_norm_legit_functional") ||
         is_named(op, "aten::_batch_norm_with_update_functional");
}

bool is_nll(const graph::Op& op) {
  return is_named(op, "aten::nll_loss_forward") || is_named(op, "aten::nll_loss2d_forward");
}

bool is_nll_backward(const graph::Op& op) {
  return is_named(op, "aten::nll_loss_backward") || is_named(op, "aten::nll_loss2d_backward");
}

bool is_true(const graph::Argument& argument) {
  const auto* value = std::get_if<bool>(&argument.value);
  return value != nullptr && *value;
}

/// A vocabulary in consecutive parts.
bool is_consecutive(const Form& form) { return form.kind == FormKind::kSharded && form.outer == 1; }

bool is_single_or_double(const graph::Graph& graph, ValueId value) {
  const DType dtype = graph.value(value).dtype;
  return dtype == DType::kF32 || dtype == DType::kF64;
}

bool is_index(const graph::Op& op) {
  return is_named(op, "aten::index") || is_named(op, "aten::_unsafe_index") ||
         is_named(op, "aten::index_put") || is_named(op, "aten::_unsafe_index_put");
}

}  // namespace

bool is_batch_norm_backward(const graph::Op& op) {
  return is_named(op, "aten::native_batch_norm_backward") ||
         is_named(op, "aten::batch_norm_backward");
}

bool trains_batch_norm(const graph::Op& op) {
  if (!is_batch_norm(op)) return false;
  if (is_named(op, "aten::_batch_norm_with_update_functional")) return true;
  return is_true(op.arguments[op.overload == "no_stats" ? 3 : 5]);
}

bool can_rewrite(const graph::Graph& graph, const graph::Op& op, const Strategy& strategy) {
  if (is_named(op, "aten::native_dropout") || is_batch_norm(op) || is_batch_norm_backward(op))
    return true;
  if (is_named(op, "aten::arange")) return is_consecutive(strategy.results[0]);
  if (is_index(op)) return is_consecutive(strategy.operands[0]);
  if (has_statistics(op)) return is_single_or_double(graph, op.outputs.back());
  if (is_named(op, "aten::embedding")) return is_consecutive(strategy.operands[0]);
  if (is_named(op, "aten::embedding_dense_backward"))
    return is_consecutive(strategy.results[0]) && !is_true(op.arguments[4]);
  const bool is_log_softmax = is_named(op, "aten::_log_softmax");
  if (is_log_softmax || is_named(op, "aten::_log_softmax_backward_data"))
    return is_single_or_double(graph, op.outputs[0]) &&
           (!is_log_softmax || !is_true(op.arguments[2]));
  if (!is_nll(op) && !is_nll_backward(op)) return false;
  const bool forward = is_nll(op);
  const Form& x = strategy.operands[forward ? 0 : 1];
  if (splits_samples(x)) return forward;
  const auto self = std::get<ValueId>(op.arguments[forward ? 0 : 1].value);
  return graph.value(self).shape.size() > 1 && is_consecutive(x) &&
         is_single_or_double(graph, self);
}

void ShardedOperators::emit_one(OpId id) {
  const Strategy& strategy = sharding_.ops[id.index()];
  const graph::Split split =
      strategy.factor < 0
          ? graph::Split::kPlain
          : step_.rules[id.index()].factors[static_cast<std::size_t>(strategy.factor)].split;
  if (is_named(graph_.op(id), "aten::native_dropout")) return emit_dropout(id);
  if (split == graph::Split::kRewritten) return emit_rewritten(id);
  if (part_of(id) == 0) return emit_nothing(id);
  emit_plain(id, split == graph::Split::kMean ? part_of(id) : 1);
}

void ShardedOperators::emit_rewritten(OpId id) {
  const graph::Op& op = graph_.op(id);
  const std::vector<Form>& operands = sharding_.ops[id.index()].operands;
  if (is_named(op, "aten::arange")) return emit_arange(id);
  if (is_index(op)) return emit_index(id);
  if (is_batch_norm(op)) {
    return options_.batch_norm == plan::BatchNormMode::kLocal ? emit_batch_norm_local(id)
                                                              : emit_batch_norm(id);
  }
  if (is_batch_norm_backward(op)) return emit_batch_norm_backward(id);
  if (has_statistics(op)) return emit_statistics(id);
  if (is_nll(op)) return splits_samples(operands[0]) ? emit_nll_mean(id) : emit_nll_classes(id);
  if (is_nll_backward(op)) return emit_nll_classes_backward(id);
  if (is_named(op, "aten::_log_softmax")) return emit_log_softmax(id);
  if (is_named(op, "aten::_log_softmax_backward_data")) return emit_log_softmax_backward(id);
  if (is_named(op, "aten::embedding")) return emit_embedding(id);
  emit_embedding_backward(id);
}

BufferId ShardedOperators::define(ValueId id, BufferId base) {
  BufferId& buffer = buffers_[id.index()];
  buffer = builder_.add_temporary(graph_.value(id).dtype, local_shape(id, step_.homes[id.index()]),
                                  base);
  return buffer;
}

std::vector<std::int64_t> ShardedOperators::local_factors(OpId id) {
  const ShardingRule& rule = step_.rules[id.index()];
  const Strategy& strategy = sharding_.ops[id.index()];
  std::vector<std::int64_t> sizes;
  for (const graph::Factor& factor : rule.factors) sizes.push_back(factor.size);
  if (strategy.factor >= 0) {
    std::int64_t& size = sizes[static_cast<std::size_t>(strategy.factor)];
    const std::int64_t around = strategy.outer * strategy.inner;
    size = around * own(size / around);
  }
  return sizes;
}

double ShardedOperators::part_of(OpId id) {
  const Strategy& strategy = sharding_.ops[id.index()];
  if (strategy.factor < 0) return 1;
  const auto& factor = step_.rules[id.index()].factors[static_cast<std::size_t>(strategy.factor)];
  const auto local = local_factors(id)[static_cast<std::size_t>(strategy.factor)];
  return static_cast<double>(local) / static_cast<double>(std::max<std::int64_t>(1, factor.size));
}

Argument ShardedOperators::make_argument(const graph::Argument& argument, OpId id,
                                         std::size_t& operand) {
  return std::visit(
      [&](const auto& value) -> Argument {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, graph::NoneArgument>) {
          return {program::NoneArgument{}};
        } else if constexpr (std::is_same_v<T, ValueId>) {
          const std::size_t o = operand++;
          if (is_ignored(step_.rules[id.index()], o)) return {buffers_[value.index()]};
          return {in_form(value, sharding_.ops[id.index()].operands[o])};
        } else if constexpr (std::is_same_v<T, graph::SizeArgument>) {
          return {sizes_.integer(value.expr)};
        } else if constexpr (std::is_same_v<T, graph::NumberArgument>) {
          return {NumberArgument{sizes_(value.expr)}};
        } else if constexpr (std::is_same_v<T, graph::KeywordArgument>) {
          return {program::KeywordArgument{value.kind, value.word}};
        } else if constexpr (std::is_same_v<T, graph::ArgumentList>) {
          ArgumentList list;
          for (const graph::Argument& element : value)
            list.push_back(make_argument(element, id, operand));
          return {list};
        } else {
          return {value};
        }
      },
      argument.value);
}

ArgumentList ShardedOperators::make_arguments(OpId id) {
  std::size_t operand = 0;
  ArgumentList made;
  const graph::Op& op = graph_.op(id);
  made.reserve(op.arguments.size());
  for (const graph::Argument& argument : op.arguments)
    made.push_back(make_argument(argument, id, operand));
  const ShardingRule& rule = step_.rules[id.index()];
  if (sharding_.ops[id.index()].factor < 0) return made;  // sizes are those of the whole
  const std::vector<std::int64_t> sizes = local_factors(id);
  for (const graph::SizeSlot& slot : rule.slots) {
    std::int64_t size = slot.multiple;
    for (const int factor : slot.factors) size *= sizes[static_cast<std::size_t>(factor)];
    Argument& argument = made[static_cast<std::size_t>(slot.argument)];
    if (slot.element < 0)
      argument.value = size;
    else
      std::get<ArgumentList>(argument.value)[static_cast<std::size_t>(slot.element)].value = size;
  }
  return made;
}

BufferId ShardedOperators::first_operand(const ArgumentList& arguments) {
  BufferId first;
  program::for_each_buffer(arguments, [&](BufferId id) {
    if (first.is_none()) first = id;
  });
  return first;
}

void ShardedOperators::emit_plain(OpId id, double weight) {
  const graph::Op& op = graph_.op(id);
  Instruction made = make_named(op.name, id);
  made.overload = op.overload;
  made.arguments = make_arguments(id);
  made.returns_list = op.returns_list;
  const BufferId base = graph::is_view(op.name) ? first_operand(made.arguments) : BufferId();
  std::vector<std::pair<BufferId, BufferId>> weighed;  // raw, result
  for (const ValueId output : op.outputs) {
    const BufferId result = define(output, base);
    made.outputs.push_back(result);
    if (weight == 1) continue;
    const program::Buffer like = builder_.buffer(result);
    made.outputs.back() = builder_.add_temporary(like.dtype, like.shape);
    weighed.emplace_back(made.outputs.back(), result);
  }
  builder_.compute(std::move(made));
  emit_weighed_results(id, weighed, weight);
}

void ShardedOperators::emit_weighed_results(
    OpId id, const std::vector<std::pair<BufferId, BufferId>>& results, double weight) {
  for (const auto& [raw, result] : results) {
    Instruction times = make_named("aten::mul", id);
    times.overload = "Scalar";
    times.arguments = {{raw}, {NumberArgument{weight}}};
    times.outputs = {result};
    builder_.compute(std::move(times));
  }
}

void ShardedOperators::emit_nothing(OpId id) {
  const graph::Op& op = graph_.op(id);
  make_arguments(id);  // exchanges that others wait for
  const Argument none{program::NoneArgument{}};
  for (const ValueId output : op.outputs) {
    const DType dtype = graph_.value(output).dtype;
    if (dtype == DType::kNone) {
      define(output);
      continue;
    }
    const BufferId made = define(output);
    compute("aten::zeros",
            {{integers(builder_.buffer(made).shape)},
             {program::KeywordArgument{"dtype", std::string(dtype_name(dtype))}},
             none,
             {program::KeywordArgument{"device", "local"}},
             none},
            {made}, op.module);
  }
}

void ShardedOperators::emit_dropout(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Form& form = sharding_.ops[id.index()].operands[0];
  const auto x = std::get<ValueId>(op.arguments[0].value);
  Slab slab{1, 1, sum_of_elements(x)};
  std::int64_t first = 0;
  if (form.kind == FormKind::kSharded) {
    slab = slab_of(whole_shape(x), form);
    first = begin(slab.extent);
  } else if (const auto samples = sample_form(x)) {
    slab = slab_of(whole_shape(x), *samples);
  }
  const ArgumentList given = make_arguments(id);
  if (given.size() > 2 && std::holds_alternative<bool>(given[2].value) &&
      !std::get<bool>(given[2].value))
    return emit_plain(id, 1);
  OpId drawn_by = id;
  if (step_.copies != nullptr) {  // samples lead, so a micro-batch is a stretch of all elements
    const Copy& copy = (*step_.copies)[id.index()];
    drawn_by = copy.of;
    first += copy.micro_batch * slab.before * slab.extent;
  }
  emit_dropout_at(id, given[0], given[1], {slab.before, slab.after, first, slab.extent, drawn_by},
                  [&](ValueId v) { return define(v); });
}

BufferId ShardedOperators::label_count(OpId id, Labels kind) {
  const graph::Op& op = graph_.op(id);
  const std::vector<Form>& forms = sharding_.ops[id.index()].operands;
  ArgumentList labels(2, {program::NoneArgument{}});
  std::size_t operand = 1;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (const auto* value = std::get_if<ValueId>(&op.arguments[i + 1].value))
      labels[i].value = in_form(*value, forms[operand++]);
  labels.push_back({std::get<std::int64_t>(op.arguments[4].value)});
  return StepEmitter::label_count(id, std::move(labels), kind);
}

void ShardedOperators::emit_nll_mean(OpId id) {
  const graph::Op& op = graph_.op(id);
  ArgumentList given = make_arguments(id);
  const BufferId counted = label_count(id, Labels::kSpread);
  given[3].value = kSumReduction;
  const DType dtype = graph_.value(op.outputs[0]).dtype;
  const BufferId sum = builder_.add_temporary(dtype, {});
  const BufferId unused = builder_.add_temporary(dtype, {});
  Instruction made = make_named(op.name, id);
  made.overload = op.overload;
  made.arguments = std::move(given);
  made.outputs = {sum, unused};
  builder_.compute(std::move(made));
  const BufferId count = converted(counted, graph_.value(op.outputs[1]).dtype, id);
  buffers_[op.outputs[1].index()] = count;
  emit_quotient(sum, count, define(op.outputs[0]), id);
}

/// Where a value holds the samples, the same elements are named by sample as by place in all.
std::optional<Form> ShardedOperators::sample_form(ValueId value) {
  const std::vector<graph::SizeExpr>& shape = graph_.value(value).shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t size = sizes_.integer(shape[d]);
    if (shape[d].depends_on("batch") && size % sharding_.batch == 0)
      return Form{FormKind::kSharded, static_cast<int>(d), 1, sharding_.batch,
                  size / sharding_.batch};
  }
  return std::nullopt;
}

void ShardedOperators::emit_arange(OpId id) {
  const graph::Op& op = graph_.op(id);
  const Form& form = sharding_.ops[id.index()].results[0];
  Instruction made = make_named(op.name, id);
  made.arguments = make_arguments(id);
  made.overload = op.overload;
  std::int64_t start = 0;
  if (op.overload.empty()) {
    made.overload = "start";
    made.arguments.insert(made.arguments.begin(), Argument{start});
  } else if (const auto* given = std::get_if<std::int64_t>(&made.arguments[0].value)) {
    start = *given;
  }
  start += first_here(form);
  made.arguments[0].value = start;
  made.arguments[1].value = start + own(form.extent) * form.inner;
  made.outputs = {define(op.outputs[0])};
  builder_.compute(std::move(made));
}

void ShardedOperators::emit_index(OpId id) {
  if (part_of(id) == 0) return emit_nothing(id);
  const graph::Op& op = graph_.op(id);
  const Form& rows = sharding_.ops[id.index()].operands[0];
  Instruction made = make_named(op.name, id);
  made.overload = op.overload;
  made.arguments = make_arguments(id);
  Argument& numbers =
      std::get<ArgumentList>(made.arguments[1].value)[static_cast<std::size_t>(rows.dim)];
  const auto global = std::get<BufferId>(numbers.value);
  const program::Buffer like = builder_.buffer(global);
  numbers.value = call(id, "aten::sub", "Scalar",
                       {{global}, number_argument(first_here(rows)), {std::int64_t{1}}}, like.dtype,
                       like.shape);
  for (const ValueId output : op.outputs) made.outputs.push_back(define(output));
  builder_.compute(std::move(made));
}

void ShardedOperators::emit_batch_norm_local(OpId id) {
  if (part_of(id) == 0) return emit_nothing(id);
  const graph::Op& op = graph_.op(id);
  const std::vector<Form>& results = sharding_.ops[id.index()].results;
  Instruction made = make_named(op.name, id);
  made.overload = op.overload;
  made.arguments = make_arguments(id);
  made.returns_list = op.returns_list;
  std::vector<std::pair<BufferId, BufferId>> running;  // raw, result
  for (std::size_t r = 0; r < results.size(); ++r) {
    const BufferId result = define(op.outputs[r]);
    made.outputs.push_back(result);
    if (results[r].kind != FormKind::kPartial) continue;
    const program::Buffer like = builder_.buffer(result);
    made.outputs.back() = builder_.add_temporary(like.dtype, like.shape);
    running.emplace_back(made.outputs.back(), result);
  }
  builder_.compute(std::move(made));
  emit_weighed_results(id, running, part_of(id));
}

ShardedOperators::Channels ShardedOperators::channels_of(ValueId x) {
  const std::int64_t channels = whole_shape(x)[1];
  return {channels, channels == 0 ? 0 : sum_of_elements(x) / channels};
}

void ShardedOperators::emit_batch_norm(OpId id) {
  const auto x = std::get<ValueId>(graph_.op(id).arguments[0].value);
  emit_batch_norm_over(id, make_arguments(id), channels_of(x),
                       [&](ValueId v) { return define(v); });
}

void ShardedOperators::emit_batch_norm_backward(OpId id) {
  const auto x = std::get<ValueId>(graph_.op(id).arguments[1].value);
  emit_batch_norm_backward_over(id, make_arguments(id), channels_of(x),
                                [&](ValueId v) { return define(v); });
}

}  // namespace motley::synth
