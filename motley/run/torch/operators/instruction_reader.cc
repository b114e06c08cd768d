#include "motley/run/torch/operators/instruction_reader.h"

#include <fmt/format.h>

#include "motley/program/program_text.h"

namespace motley::run {

InstructionReader::InstructionReader(const program::DeviceProgram& program,
                                     const program::Instruction& instruction)
    : program_(program), instruction_(instruction) {}

const program::Argument* InstructionReader::find(std::size_t argument, const std::string& wanted) {
  if (argument < instruction_.arguments.size()) return &instruction_.arguments[argument];
  refuse(argument, wanted);
  return nullptr;
}

void InstructionReader::refuse(std::size_t argument, const std::string& wanted) {
  if (fault_) return;
  const std::string found = argument < instruction_.arguments.size()
                                ? program::print_argument(instruction_.arguments[argument])
                                : "nothing";
  fault_ = fmt::format("argument {} of {}: found {}, wanted {}", argument, instruction_.full_name(),
                       found, wanted);
}

int InstructionReader::buffer(std::size_t argument) {
  const auto* found = find(argument, "a buffer");
  if (found == nullptr) return 0;
  if (const auto* id = std::get_if<BufferId>(&found->value)) return id->value;
  refuse(argument, "a buffer");
  return 0;
}

int InstructionReader::optional_buffer(std::size_t argument) {
  const auto* found = find(argument, "a buffer or none");
  if (found == nullptr || std::holds_alternative<NoneArgument>(found->value)) return -1;
  return buffer(argument);
}

std::vector<int> InstructionReader::buffers(std::size_t argument) {
  const auto* found = find(argument, "a list of buffers");
  const auto* list = found ? std::get_if<program::ArgumentList>(&found->value) : nullptr;
  std::vector<int> ids;
  if (list == nullptr) {
    refuse(argument, "a list of buffers");
    return ids;
  }
  for (const program::Argument& item : *list) {
    const auto* id = std::get_if<BufferId>(&item.value);
    if (id == nullptr) refuse(argument, "a list of buffers");
    ids.push_back(id ? id->value : 0);
  }
  return ids;
}

std::int64_t InstructionReader::integer(std::size_t argument) {
  const auto* found = find(argument, "an integer");
  if (found == nullptr) return 0;
  if (const auto* value = std::get_if<std::int64_t>(&found->value)) return *value;
  if (const auto* value = std::get_if<program::NumberArgument>(&found->value))
    if (const auto* whole = std::get_if<std::int64_t>(&value->value)) return *whole;
  refuse(argument, "an integer");
  return 0;
}

namespace {

std::optional<double> read_float(const program::Argument& argument) {
  if (const auto* value = std::get_if<double>(&argument.value)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&argument.value))
    return static_cast<double>(*value);
  if (const auto* value = std::get_if<program::NumberArgument>(&argument.value))
    return std::visit([](auto number) { return static_cast<double>(number); }, value->value);
  return std::nullopt;
}

}  // namespace

double InstructionReader::number(std::size_t argument) {
  const auto* found = find(argument, "a number");
  if (found == nullptr) return 0;
  const std::optional<double> value = read_float(*found);
  if (!value) refuse(argument, "a number");
  return value.value_or(0);
}

std::vector<double> InstructionReader::numbers(std::size_t argument) {
  const auto* found = find(argument, "a list of numbers");
  const auto* list = found ? std::get_if<program::ArgumentList>(&found->value) : nullptr;
  std::vector<double> values;
  if (list == nullptr) {
    refuse(argument, "a list of numbers");
    return values;
  }
  for (const program::Argument& item : *list) {
    const std::optional<double> value = read_float(item);
    if (!value) refuse(argument, "a list of numbers");
    values.push_back(value.value_or(0));
  }
  return values;
}

std::optional<double> InstructionReader::optional_number(std::size_t argument) {
  const auto* found = find(argument, "a number or none");
  if (found == nullptr || std::holds_alternative<NoneArgument>(found->value)) return {};
  return number(argument);
}

bool InstructionReader::boolean(std::size_t argument) {
  const auto* found = find(argument, "true or false");
  if (found == nullptr) return false;
  if (const auto* value = std::get_if<bool>(&found->value)) return *value;
  refuse(argument, "true or false");
  return false;
}

std::string InstructionReader::text(std::size_t argument) {
  const auto* found = find(argument, "a string");
  if (found == nullptr) return "";
  if (const auto* value = std::get_if<std::string>(&found->value)) return *value;
  refuse(argument, "a string");
  return "";
}

int InstructionReader::output(std::size_t position) {
  if (position < instruction_.outputs.size()) return instruction_.outputs[position].value;
  if (!fault_)
    fault_ = fmt::format("{}: found {} results, wanted at least {}", instruction_.full_name(),
                         instruction_.outputs.size(), position + 1);
  return 0;
}

std::vector<int> InstructionReader::outputs() const {
  std::vector<int> ids;
  for (const BufferId id : instruction_.outputs) ids.push_back(id.value);
  return ids;
}

const program::Buffer& InstructionReader::about(int id) const {
  return program_.buffers[static_cast<std::size_t>(id)];
}

Result<void> InstructionReader::status() const {
  if (fault_) return usage_error("run.bad-instruction", *fault_);
  return {};
}

}  // namespace motley::run
