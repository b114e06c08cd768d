#include "motley/run/torch/operators/operator_call.h"

#include <ATen/ScalarOps.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <fmt/format.h>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/program_text.h"
#include "motley/run/torch/operators/tensors.h"

namespace motley::run {

namespace {

using c10::IValue;
using c10::TypeKind;
using program::Argument;
using program::ArgumentList;

std::optional<c10::OperatorHandle> find_operator(const program::Instruction& instruction) {
  // Parts of a tensor may not be contiguous where the whole is: reshape copies only then.
  const bool is_view = instruction.op == "aten::view" || instruction.op == "aten::_unsafe_view";
  if (is_view && instruction.overload.empty())
    return c10::Dispatcher::singleton().findSchema({"aten::reshape", ""});
  return c10::Dispatcher::singleton().findSchema({instruction.op, instruction.overload});
}

/// What is pushed onto the stack for one argument.
struct Operand {
  enum class Kind { kConstant, kTensor, kTensorList, kOptionalTensorList };
  Kind kind = Kind::kConstant;
  IValue constant;
  std::vector<int> buffers;  // -1: none
};

std::optional<IValue> find_keyword(const KeywordArgument& keyword, at::Device device) {
  if (keyword.kind == "device") return IValue(device);
  if (keyword.kind == "dtype") {
    const auto dtype = motley::find_dtype(keyword.word);
    if (dtype && *dtype != DType::kNone) return IValue(scalar_type(*dtype));
  }
  if (keyword.kind == "layout" && keyword.word == "strided") return IValue(c10::kStrided);
  if (keyword.kind == "memory_format") {
    static constexpr std::array<std::pair<std::string_view, c10::MemoryFormat>, 4> kFormats = {{
        {"contiguous", c10::MemoryFormat::Contiguous},
        {"channels_last", c10::MemoryFormat::ChannelsLast},
        {"channels_last_3d", c10::MemoryFormat::ChannelsLast3d},
        {"preserve", c10::MemoryFormat::Preserve},
    }};
    for (const auto& [word, format] : kFormats)
      if (keyword.word == word) return IValue(format);
  }
  return std::nullopt;
}

/// Returns a plain number as int64, double or two doubles; empty for other arguments.
std::optional<c10::Scalar> find_number(const Argument& argument) {
  if (const auto* whole = std::get_if<std::int64_t>(&argument.value)) return c10::Scalar(*whole);
  if (const auto* real = std::get_if<double>(&argument.value)) return c10::Scalar(*real);
  if (const auto* truth = std::get_if<bool>(&argument.value)) return c10::Scalar(*truth);
  if (const auto* number = std::get_if<ComplexArgument>(&argument.value))
    return c10::Scalar(c10::complex<double>(number->real, number->imaginary));
  if (const auto* number = std::get_if<program::NumberArgument>(&argument.value))
    return std::visit([](auto value) { return c10::Scalar(value); }, number->value);
  return std::nullopt;
}

bool is_whole(const c10::Scalar& number) { return number.isIntegral(/*includeBool=*/false); }

at::Tensor wrap_number(const c10::Scalar& number) {
  at::Tensor tensor = c10::scalar_to_tensor(number);
  // Otherwise a number would take part in type promotion as a tensor: f32 * 2.0 would become f64.
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

/// Returns the values of a numeric list as `Item`; empty if an element does not fit.
template <typename Item>
std::optional<IValue> number_list(const ArgumentList& arguments) {
  c10::List<Item> list;
  for (const Argument& argument : arguments) {
    const auto number = find_number(argument);
    if (!number) return std::nullopt;
    // No silent conversion: lowering never writes 1.0 for a size.
    if (std::is_same_v<Item, bool> != number->isBoolean() || number->isComplex())
      return std::nullopt;
    if (std::is_same_v<Item, std::int64_t> && !is_whole(*number)) return std::nullopt;
    list.push_back(number->to<Item>());
  }
  return IValue(std::move(list));
}

std::optional<Operand> tensor_list(const ArgumentList& arguments, Operand::Kind kind) {
  Operand operand{kind, {}, {}};
  for (const Argument& argument : arguments) {
    if (const auto* id = std::get_if<BufferId>(&argument.value)) {
      operand.buffers.push_back(id->value);
    } else if (kind == Operand::Kind::kOptionalTensorList &&
               std::holds_alternative<NoneArgument>(argument.value)) {
      operand.buffers.push_back(-1);
    } else {
      return std::nullopt;
    }
  }
  return operand;
}

std::optional<Operand> constant(std::optional<IValue> value) {
  if (!value) return std::nullopt;
  return Operand{Operand::Kind::kConstant, std::move(*value), {}};
}

std::optional<Operand> list_operand(const Argument& argument, const c10::Argument& schema,
                                    const c10::Type& element) {
  const auto* list = std::get_if<ArgumentList>(&argument.value);
  const bool is_int = element.kind() == TypeKind::IntType || element.kind() == TypeKind::SymIntType;
  if (list == nullptr) {
    const auto number = find_number(argument);
    // "int[2] stride=1": schemas with a fixed length accept one number for all.
    if (!number || !is_int || !is_whole(*number) || !schema.N()) return std::nullopt;
    return constant(IValue(std::vector<std::int64_t>(*schema.N(), number->toLong())));
  }
  if (element.kind() == TypeKind::TensorType) return tensor_list(*list, Operand::Kind::kTensorList);
  if (element.kind() == TypeKind::OptionalType)
    return tensor_list(*list, Operand::Kind::kOptionalTensorList);
  if (is_int) return constant(number_list<std::int64_t>(*list));
  if (element.kind() == TypeKind::FloatType) return constant(number_list<double>(*list));
  if (element.kind() == TypeKind::BoolType) return constant(number_list<bool>(*list));
  return std::nullopt;
}

std::optional<Operand> number_operand(const Argument& argument, TypeKind kind) {
  const auto number = find_number(argument);
  if (!number) return std::nullopt;
  switch (kind) {
    case TypeKind::TensorType:
      return constant(IValue(wrap_number(*number)));
    case TypeKind::IntType:
    case TypeKind::SymIntType:
      if (!is_whole(*number)) return std::nullopt;
      return constant(IValue(number->toLong()));
    case TypeKind::FloatType:
    case TypeKind::SymFloatType:
      if (number->isBoolean() || number->isComplex()) return std::nullopt;
      return constant(IValue(number->toDouble()));
    case TypeKind::BoolType:
      if (!number->isBoolean()) return std::nullopt;
      return constant(IValue(number->toBool()));
    case TypeKind::NumberType:
      return constant(IValue(*number));
    default:
      return std::nullopt;
  }
}

/// Returns the operand for an argument of a schema; empty if it does not fit.
std::optional<Operand> find_operand(const Argument& argument, const c10::Argument& schema,
                                    at::Device device) {
  const c10::Type* type = schema.real_type().get();
  const bool is_optional = type->kind() == TypeKind::OptionalType;
  if (is_optional) type = type->castRaw<c10::OptionalType>()->getElementType().get();
  if (std::holds_alternative<NoneArgument>(argument.value)) {
    if (is_optional) return constant(IValue());
    // Some backward operators accept an undefined Tensor without declaring it in the schema.
    if (type->kind() == TypeKind::TensorType) return constant(IValue(at::Tensor()));
    return std::nullopt;
  }
  if (const auto* id = std::get_if<BufferId>(&argument.value)) {
    if (type->kind() != TypeKind::TensorType) return std::nullopt;
    return Operand{Operand::Kind::kTensor, {}, {id->value}};
  }
  if (const auto* keyword = std::get_if<KeywordArgument>(&argument.value))
    return constant(find_keyword(*keyword, device));
  if (const auto* text = std::get_if<std::string>(&argument.value)) {
    if (type->kind() != TypeKind::StringType) return std::nullopt;
    return constant(IValue(*text));
  }
  if (type->kind() == TypeKind::ListType)
    return list_operand(argument, schema, *type->castRaw<c10::ListType>()->getElementType());
  return number_operand(argument, type->kind());
}

class OperatorCall {
 public:
  OperatorCall(c10::OperatorHandle handle, std::vector<Operand> operands, std::vector<int> results,
               bool returns_list)
      : handle_(std::move(handle)),
        operands_(std::move(operands)),
        results_(std::move(results)),
        returns_list_(returns_list) {}

  void operator()(Frame& frame) const {
    frame.stack.clear();  // an operator that threw left its arguments
    for (const Operand& operand : operands_) push(operand, frame);
    handle_.callBoxed(frame.stack);
    take_results(frame);
    frame.stack.clear();
  }

 private:
  static void push(const Operand& operand, Frame& frame) {
    switch (operand.kind) {
      case Operand::Kind::kConstant:
        frame.stack.push_back(operand.constant);
        return;
      case Operand::Kind::kTensor:
        frame.stack.emplace_back(frame.values[operand.buffers[0]]);
        return;
      case Operand::Kind::kTensorList: {
        c10::List<at::Tensor> list;
        list.reserve(operand.buffers.size());
        for (const int id : operand.buffers) list.push_back(frame.values[id]);
        frame.stack.emplace_back(std::move(list));
        return;
      }
      case Operand::Kind::kOptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const int id : operand.buffers)
          list.push_back(id < 0 ? std::nullopt : std::optional<at::Tensor>(frame.values[id]));
        frame.stack.emplace_back(std::move(list));
        return;
      }
    }
  }

  void take_results(Frame& frame) const {
    if (returns_list_) {
      const c10::List<at::Tensor> list = frame.stack.at(0).toTensorList();
      TORCH_CHECK(list.size() == results_.size(), "found ", list.size(), " results, wanted ",
                  results_.size());
      for (std::size_t i = 0; i < results_.size(); ++i) frame.values[results_[i]] = list.get(i);
      return;
    }
    TORCH_CHECK(frame.stack.size() >= results_.size(), "found ", frame.stack.size(),
                " results, wanted ", results_.size());
    for (std::size_t i = 0; i < results_.size(); ++i)
      frame.values[results_[i]] = std::move(frame.stack[i]).toTensor();
  }

  c10::OperatorHandle handle_;
  std::vector<Operand> operands_;
  std::vector<int> results_;
  bool returns_list_;
};

}  // namespace

bool has_operator(const program::Instruction& instruction) {
  return find_operator(instruction).has_value();
}

Result<Kernel> make_operator_call(const program::Instruction& instruction, at::Device device) {
  const auto handle = find_operator(instruction);
  MOTLEY_CHECK(handle.has_value());
  const std::vector<c10::Argument>& schema = handle->schema().arguments();
  const auto refuse = [&](const std::string& what) {
    return usage_error("run.bad-instruction",
                       fmt::format("{} of {}", what, instruction.full_name()));
  };
  if (instruction.arguments.size() > schema.size())
    return refuse(fmt::format("found {} arguments, wanted at most {}", instruction.arguments.size(),
                              schema.size()));
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < schema.size(); ++i) {
    if (i >= instruction.arguments.size()) {
      if (!schema[i].default_value())
        return refuse(fmt::format("found {} arguments, wanted argument '{}' too",
                                  instruction.arguments.size(), schema[i].name()));
      operands.push_back({Operand::Kind::kConstant, *schema[i].default_value(), {}});
      continue;
    }
    auto operand = find_operand(instruction.arguments[i], schema[i], device);
    if (!operand)
      return refuse(fmt::format("found {}, wanted {} for argument '{}'",
                                program::print_argument(instruction.arguments[i]),
                                schema[i].real_type()->str(), schema[i].name()));
    operands.push_back(std::move(*operand));
  }
  std::vector<int> results;
  for (const BufferId id : instruction.outputs) results.push_back(id.value);
  return Kernel(
      OperatorCall(*handle, std::move(operands), std::move(results), instruction.returns_list));
}

}  // namespace motley::run
