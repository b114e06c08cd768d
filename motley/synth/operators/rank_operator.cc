#include "motley/synth/operators/rank_operator.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "motley/graph/work.h"

namespace motley::synth {

RankOperator::RankOperator(RankStep& rank, OpId id)
    : rank_(rank),
      id_(id),
      op_(rank.graph().op(id)),
      rule_(rank.step().rules[id.index()]),
      strategy_(rank.step().sharding.ops[id.index()]) {}

graph::Split RankOperator::split() const {
  return strategy_.factor < 0 ? graph::Split::kPlain
                              : rule_.factors[static_cast<std::size_t>(strategy_.factor)].split;
}

std::vector<std::int64_t> RankOperator::local_factors() const {
  std::vector<std::int64_t> sizes;
  for (const graph::Factor& factor : rule_.factors) sizes.push_back(factor.size);
  if (strategy_.factor >= 0) {
    std::int64_t& size = sizes[static_cast<std::size_t>(strategy_.factor)];
    const std::int64_t around = strategy_.outer * strategy_.inner;
    size = around * rank_.own(size / around);
  }
  return sizes;
}

double RankOperator::part() const {
  if (strategy_.factor < 0) return 1;
  const auto factor = static_cast<std::size_t>(strategy_.factor);
  return static_cast<double>(local_factors()[factor]) /
         static_cast<double>(std::max<std::int64_t>(1, rule_.factors[factor].size));
}

program::Argument RankOperator::make_argument(const graph::SymbolicArgument& argument,
                                              std::size_t& operand) const {
  return std::visit(
      [&](const auto& value) -> program::Argument {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, NoneArgument>) {
          return none();
        } else if constexpr (std::is_same_v<T, ValueId>) {
          const std::size_t o = operand++;
          if (is_ignored(rule_, o)) return {rank_.value(value)};
          return {rank_.in_form(value, strategy_.operands[o])};
        } else if constexpr (std::is_same_v<T, graph::SizeArgument>) {
          return {rank_.size(value.expr)};
        } else if constexpr (std::is_same_v<T, graph::SymbolicNumber>) {
          return number(rank_.evaluate(value.expr));
        } else if constexpr (std::is_same_v<T, KeywordArgument>) {
          return keyword(value.kind, value.word);
        } else if constexpr (std::is_same_v<T, graph::SymbolicArguments>) {
          Arguments list;
          for (const graph::SymbolicArgument& element : value)
            list.push_back(make_argument(element, operand));
          return {list};
        } else {
          return {value};
        }
      },
      argument.value);
}

Arguments RankOperator::arguments() const {
  std::size_t operand = 0;
  Arguments made;
  made.reserve(op_.arguments.size());
  for (const graph::SymbolicArgument& argument : op_.arguments)
    made.push_back(make_argument(argument, operand));
  if (strategy_.factor < 0) return made;  // sizes are global
  const std::vector<std::int64_t> sizes = local_factors();
  for (const graph::SizeSlot& slot : rule_.slots) {
    std::int64_t size = slot.multiple;
    for (const int factor : slot.factors) size *= sizes[static_cast<std::size_t>(factor)];
    program::Argument& argument = made[static_cast<std::size_t>(slot.argument)];
    if (slot.element < 0)
      argument.value = size;
    else
      std::get<Arguments>(argument.value)[static_cast<std::size_t>(slot.element)].value = size;
  }
  return made;
}

void RankOperator::write(std::string_view name, Arguments arguments,
                         std::vector<BufferId> outputs) {
  builder().compute(name, std::move(arguments), std::move(outputs), op_.module, id_);
}

BufferId RankOperator::call(std::string_view name, Arguments arguments, DType dtype, Shape shape) {
  const BufferId base = graph::is_view(name) ? first_buffer(arguments) : BufferId();
  const BufferId result = builder().add_temporary(dtype, std::move(shape), base);
  write(name, std::move(arguments), {result});
  return result;
}

BufferId RankOperator::call_like(BufferId like, std::string_view name, Arguments arguments) {
  const program::Buffer& about = builder().buffer(like);
  return call(name, std::move(arguments), about.dtype, about.shape);
}

BufferId RankOperator::zeros(DType dtype, const Shape& shape) {
  return call("aten::zeros", zeros_arguments(shape, dtype), dtype, shape);
}

BufferId RankOperator::in_dtype(BufferId x, DType dtype) {
  if (builder().buffer(x).dtype == dtype) return x;
  return call("aten::_to_copy",
              {{x}, keyword("dtype", dtype_name(dtype)), none(), none(), none(), {false}, none()},
              dtype, builder().buffer(x).shape);
}

Shape RankOperator::result_shape(std::size_t result) const {
  return rank_.local_shape(op_.outputs[result], rank_.step().home(op_.outputs[result]));
}

BufferId RankOperator::define(std::size_t result, BufferId base) {
  set(result, builder().add_temporary(dtype(result), result_shape(result), base));
  return rank_.value(op_.outputs[result]);
}

void RankOperator::give(std::size_t result, std::string_view name, Arguments arguments) {
  const BufferId base = graph::is_view(name) ? first_buffer(arguments) : BufferId();
  write(name, std::move(arguments), {define(result, base)});
}

BufferId first_buffer(const Arguments& arguments) {
  BufferId first;
  program::for_each_buffer(arguments, [&](BufferId id) {
    if (first.is_none()) first = id;
  });
  return first;
}

}  // namespace motley::synth
