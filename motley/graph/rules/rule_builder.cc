#include "motley/graph/rules/rule_builder.h"

#include <algorithm>

namespace motley::graph {
namespace {

std::vector<std::int64_t> shape_of(const Value& value, const Sizes& sizes) {
  std::vector<std::int64_t> shape;
  for (const SizeExpr& size : value.shape) shape.push_back(size.evaluate_integer(sizes));
  return shape;
}

std::optional<std::int64_t> find_integer_in(const SymbolicArgument& argument, const Sizes& sizes) {
  if (const auto* value = std::get_if<std::int64_t>(&argument.value)) return *value;
  if (const auto* size = std::get_if<SizeArgument>(&argument.value))
    return size->expr.evaluate_integer(sizes);
  return std::nullopt;
}

std::optional<int> normal_dim(std::int64_t dim, int rank) {
  if (dim < 0) dim += rank;
  if (dim < 0 || dim >= rank) return std::nullopt;
  return static_cast<int>(dim);
}

}  // namespace

RuleBuilder::RuleBuilder(const Graph& graph, OpId op, const Sizes& sizes, Statistics statistics)
    : graph_(&graph), op_(&graph.op(op)), sizes_(&sizes), statistics_(statistics) {
  const auto add = [&](ValueId id, std::size_t argument) {
    rule_.operands.push_back(id);
    positions_.push_back(static_cast<int>(argument));
    operand_shapes_.push_back(shape_of(graph.value(id), sizes));
    operand_dtypes_.push_back(graph.value(id).dtype);
    rule_.operand_factors.emplace_back(operand_shapes_.back().size());
  };
  for (std::size_t i = 0; i < op_->arguments.size(); ++i) {
    if (const auto* id = std::get_if<ValueId>(&op_->arguments[i].value)) add(*id, i);
    if (const auto* list = std::get_if<SymbolicArguments>(&op_->arguments[i].value))
      for_each_value(*list, [&](ValueId id) { add(id, i); });
  }
  for (const ValueId id : op_->outputs) {
    result_shapes_.push_back(shape_of(graph.value(id), sizes));
    result_dtypes_.push_back(graph.value(id).dtype);
    rule_.result_factors.emplace_back(result_shapes_.back().size());
  }
}

namespace {

bool counts_from_zero(const Op& op) {
  const auto is = [&](std::size_t argument, std::int64_t wanted) {
    const auto* value = argument < op.arguments.size()
                            ? std::get_if<std::int64_t>(&op.arguments[argument].value)
                            : nullptr;
    return value != nullptr && *value == wanted;
  };
  if (op.name != "aten::arange") return false;
  return op.overload.empty() || (is(0, 0) && (op.overload == "start" || is(2, 1)));
}

/// Returns whether an operator only changes the shape or type of its first operand.
bool keeps_elements(const Op& op) {
  return op.name == "aten::view" || op.name == "aten::reshape" || op.name == "aten::unsqueeze" ||
         op.name == "aten::squeeze" || op.name == "aten::_to_copy" || op.name == "aten::clone" ||
         op.name == "aten::alias" || op.name == "aten::detach";
}

/// Returns whether the value holds 0, 1, 2, ... in the order of its elements.
bool holds_row_numbers(const Graph& graph, ValueId value) {
  while (!is_floating(graph.value(value).dtype)) {
    const OpId producer = graph.value(value).producer;
    if (producer.is_none()) return false;
    const Op& op = graph.op(producer);
    if (counts_from_zero(op)) return true;
    if (!keeps_elements(op) || op.arguments.empty()) return false;
    const auto* from = std::get_if<ValueId>(&op.arguments[0].value);
    if (from == nullptr) return false;
    value = *from;
  }
  return false;
}

}  // namespace

std::optional<int> RuleBuilder::row_number_dim(int operand) const {
  const Shape& shape = operand_shape(operand);
  const auto is_wide = [](std::int64_t size) { return size != 1; };
  if (std::count_if(shape.begin(), shape.end(), is_wide) != 1 ||
      !holds_row_numbers(*graph_, rule_.operands[static_cast<std::size_t>(operand)]))
    return std::nullopt;
  return static_cast<int>(std::find_if(shape.begin(), shape.end(), is_wide) - shape.begin());
}

int RuleBuilder::operand(int argument) const {
  const auto found = std::find(positions_.begin(), positions_.end(), argument);
  return found == positions_.end() ? -1 : static_cast<int>(found - positions_.begin());
}

std::vector<int> RuleBuilder::operands_at(int argument) const {
  std::vector<int> operands;
  for (std::size_t i = 0; i < positions_.size(); ++i)
    if (positions_[i] == argument) operands.push_back(static_cast<int>(i));
  return operands;
}

const std::vector<std::int64_t>& RuleBuilder::operand_shape(int operand) const {
  return operand_shapes_[static_cast<std::size_t>(operand)];
}
const std::vector<std::int64_t>& RuleBuilder::result_shape(int result) const {
  return result_shapes_[static_cast<std::size_t>(result)];
}
bool RuleBuilder::has_result(int result) const {
  return result < result_count() && result_dtype(result) != DType::kNone;
}
DType RuleBuilder::operand_dtype(int operand) const {
  return operand_dtypes_[static_cast<std::size_t>(operand)];
}
DType RuleBuilder::result_dtype(int result) const {
  return result_dtypes_[static_cast<std::size_t>(result)];
}

std::optional<std::int64_t> RuleBuilder::integer(int argument) const {
  const auto index = static_cast<std::size_t>(argument);
  if (index >= op_->arguments.size()) return std::nullopt;
  return find_integer_in(op_->arguments[index], *sizes_);
}

std::optional<std::int64_t> RuleBuilder::integer(int argument, int element) const {
  const auto index = static_cast<std::size_t>(argument);
  if (element < 0 || element >= list_length(argument)) return std::nullopt;
  const auto& list = std::get<SymbolicArguments>(op_->arguments[index].value);
  return find_integer_in(list[static_cast<std::size_t>(element)], *sizes_);
}

std::optional<double> RuleBuilder::number(int argument) const {
  const auto index = static_cast<std::size_t>(argument);
  if (index >= op_->arguments.size()) return std::nullopt;
  if (const auto* value = std::get_if<double>(&op_->arguments[index].value)) return *value;
  if (const auto whole = integer(argument)) return static_cast<double>(*whole);
  return std::nullopt;
}

bool RuleBuilder::truth(int argument) const {
  const auto index = static_cast<std::size_t>(argument);
  return index < op_->arguments.size() &&
         op_->arguments[index].value == decltype(SymbolicArgument::value)(true);
}

int RuleBuilder::list_length(int argument) const {
  const auto index = static_cast<std::size_t>(argument);
  if (index >= op_->arguments.size()) return 0;
  const auto* list = std::get_if<SymbolicArguments>(&op_->arguments[index].value);
  return list == nullptr ? 0 : static_cast<int>(list->size());
}

std::optional<int> RuleBuilder::dim(int argument, int rank) const {
  const auto given = integer(argument);
  return given ? normal_dim(*given, rank) : std::nullopt;
}

std::vector<int> RuleBuilder::dims(int argument, int rank) const {
  std::vector<int> found;
  if (const auto one = dim(argument, rank)) found.push_back(*one);
  for (int i = 0; i < list_length(argument); ++i)
    if (const auto each = integer(argument, i))
      if (const auto normal = normal_dim(*each, rank)) found.push_back(*normal);
  if (found.empty())
    for (int d = 0; d < rank; ++d) found.push_back(d);
  return found;
}

int RuleBuilder::add_factor(std::int64_t size, Split split) {
  rule_.factors.push_back({size, split});
  return static_cast<int>(rule_.factors.size()) - 1;
}

TensorFactors RuleBuilder::add_factors(const std::vector<std::int64_t>& shape, Split split) {
  TensorFactors factors;
  for (const std::int64_t size : shape) factors.push_back({add_factor(size, split)});
  return factors;
}

void RuleBuilder::never(const DimFactors& dim) { set_split(dim, Split::kNever); }

void RuleBuilder::set_split(const DimFactors& dim, Split split) {
  for (const int id : dim) factor(id).split = split;
}

void RuleBuilder::set_operand(int operand, TensorFactors factors) {
  if (operand >= 0) rule_.operand_factors[static_cast<std::size_t>(operand)] = std::move(factors);
}

void RuleBuilder::set_result(int result, TensorFactors factors) {
  if (!has_result(result)) return;  // an unused gradient
  rule_.result_factors[static_cast<std::size_t>(result)] = std::move(factors);
}

std::optional<TensorFactors> RuleBuilder::broadcast(const std::vector<std::int64_t>& shape,
                                                    const TensorFactors& wide) const {
  if (shape.size() > wide.size()) return std::nullopt;
  TensorFactors factors(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const DimFactors& dim = wide[wide.size() - shape.size() + d];
    std::int64_t size = 1;
    for (const int id : dim) size *= rule_.factors[static_cast<std::size_t>(id)].size;
    if (shape[d] == size) {
      factors[d] = dim;
    } else if (shape[d] != 1) {
      return std::nullopt;
    }
  }
  return factors;
}

bool RuleBuilder::set_linear(TensorFactors operand, TensorFactors result) {
  set_operand(0, std::move(operand));
  set_result(0, std::move(result));
  add_term({0});
  return true;
}

bool RuleBuilder::broadcast_operands(const TensorFactors& wide) {
  for (int i = 0; i < operand_count(); ++i) {
    auto aligned = broadcast(operand_shape(i), wide);
    if (!aligned) return false;
    set_operand(i, std::move(*aligned));
  }
  return true;
}

void RuleBuilder::add_slot(int argument, int element, DimFactors factors, std::int64_t multiple) {
  rule_.slots.push_back({argument, element, std::move(factors), multiple});
}

void RuleBuilder::add_shape_slots(int argument, const TensorFactors& dims) {
  for (int i = 0; i < list_length(argument); ++i)
    if (integer(argument, i).value_or(-1) >= 0)
      add_slot(argument, i, dims[static_cast<std::size_t>(i)]);
}

void RuleBuilder::add_term(std::vector<int> operands) {
  operands.erase(std::remove(operands.begin(), operands.end(), -1), operands.end());
  if (!operands.empty()) rule_.terms.push_back(std::move(operands));
}

void RuleBuilder::set_independent(int result, int factor) {
  rule_.independent.emplace_back(result, factor);
}

std::optional<ShardingRule> RuleBuilder::finish() {
  const auto fits = [&](const std::vector<std::int64_t>& shape, const TensorFactors& factors) {
    if (shape.size() != factors.size()) return false;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      std::int64_t size = 1;
      for (const int id : factors[d]) size *= rule_.factors[static_cast<std::size_t>(id)].size;
      if (size != shape[d]) return false;
    }
    return true;
  };
  for (std::size_t i = 0; i < operand_shapes_.size(); ++i)
    if (!fits(operand_shapes_[i], rule_.operand_factors[i])) return std::nullopt;
  for (std::size_t i = 0; i < result_shapes_.size(); ++i)
    if (has_result(static_cast<int>(i)) && !fits(result_shapes_[i], rule_.result_factors[i]))
      return std::nullopt;
  drop_unused_factors();
  return std::move(rule_);
}

void RuleBuilder::drop_unused_factors() {
  std::vector<int> number(rule_.factors.size(), -1);
  std::vector<Factor> used;
  const auto renumber = [&](std::vector<TensorFactors>& tensors) {
    for (TensorFactors& tensor : tensors)
      for (DimFactors& dim : tensor)
        for (int& id : dim) {
          int& name = number[static_cast<std::size_t>(id)];
          if (name < 0) {
            name = static_cast<int>(used.size());
            used.push_back(factor(id));
          }
          id = name;
        }
  };
  renumber(rule_.operand_factors);
  renumber(rule_.result_factors);
  for (SizeSlot& slot : rule_.slots)
    for (int& id : slot.factors) id = number[static_cast<std::size_t>(id)];
  for (auto& [result, id] : rule_.independent) id = number[static_cast<std::size_t>(id)];
  rule_.factors = std::move(used);
}

}  // namespace motley::graph
