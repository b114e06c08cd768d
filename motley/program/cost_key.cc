#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "motley/base/text.h"
#include "motley/program/boxes.h"
#include "motley/program/commit.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"

namespace motley::program {
namespace {

void append_tensor(std::string& key, const Buffer& buffer) {
  fmt::format_to(std::back_inserter(key), "{}[{}]", dtype_name(buffer.dtype),
                 fmt::join(buffer.shape, ","));
}

void append_arguments(std::string& key, const DeviceProgram& program, const ArgumentList& arguments,
                      bool keep_floats);

/// Returns whether the argument cannot choose a kernel: a tensor's device or layout.
bool is_free_of_cost(const Argument& argument) {
  const auto* keyword = std::get_if<KeywordArgument>(&argument.value);
  return keyword && (keyword->kind == "device" || keyword->kind == "layout");
}

void append_argument(std::string& key, const DeviceProgram& program, const Argument& argument,
                     bool keep_floats) {
  if (const auto* id = std::get_if<BufferId>(&argument.value)) {
    append_tensor(key, program.buffer(*id));
  } else if (const auto* list = std::get_if<ArgumentList>(&argument.value)) {
    key += '[';
    append_arguments(key, program, *list, keep_floats);
    key += ']';
  } else if (std::holds_alternative<NumberArgument>(argument.value)) {
    key += "number";
  } else if (std::holds_alternative<double>(argument.value) && !keep_floats) {
    key += "float";
  } else if (std::holds_alternative<ComplexArgument>(argument.value) && !keep_floats) {
    key += "complex";
  } else {
    key += print_argument(argument);
  }
}

void append_arguments(std::string& key, const DeviceProgram& program, const ArgumentList& arguments,
                      bool keep_floats) {
  bool is_first = true;
  for (const Argument& argument : arguments) {
    if (is_free_of_cost(argument)) continue;
    if (!std::exchange(is_first, false)) key += ", ";
    append_argument(key, program, argument, keep_floats);
  }
}

/// Returns "f32, 2048 elements, 3 tensors" for the buffers in arguments [begin, end).
std::string sum_up(const DeviceProgram& program, const Instruction& instruction, std::size_t begin,
                   std::size_t end) {
  std::vector<std::string> dtypes;
  std::int64_t elements = 0, tensors = 0;
  for (std::size_t i = begin; i < std::min(end, instruction.arguments.size()); ++i)
    for_each_buffer({instruction.arguments[i]}, [&](BufferId id) {
      const Buffer& buffer = program.buffer(id);
      const std::string dtype(dtype_name(buffer.dtype));
      if (std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) dtypes.push_back(dtype);
      elements += buffer.elements();
      ++tensors;
    });
  return fmt::format("{}, {} elements, {} tensors", join(dtypes, "+"), elements, tensors);
}

/// Returns the key of motley::update and motley::direction: parameters (gradients are as many),
/// states, and optional work on the gradients or the count of good steps.
std::string update_key(const DeviceProgram& program, const Instruction& instruction) {
  int states = 0;
  for (std::size_t i = 3; i < std::min<std::size_t>(5, instruction.arguments.size()); ++i)
    if (const auto* list = std::get_if<ArgumentList>(&instruction.arguments[i].value))
      states += list->empty() ? 0 : 1;
  const std::string kind =
      instruction.arguments.empty() ? "" : print_argument(instruction.arguments[0]);
  std::string before;
  for (std::size_t i = 5; i < std::min<std::size_t>(8, instruction.arguments.size()); ++i)
    if (!std::holds_alternative<NoneArgument>(instruction.arguments[i].value))
      before += i == 5 ? ", scaled" : i == 6 ? ", counted" : ", clipped";
  return fmt::format("{}({}, {}, {} states{})", instruction.full_name(), kind,
                     sum_up(program, instruction, 1, 2), states, before);
}

/// Returns "motley::cut(f32, 2048 elements, 3 parts, 4 before, 16 after)": sizes, not positions.
std::string parts_key(const DeviceProgram& program, const Instruction& instruction,
                      const TensorParts& parts) {
  const Buffer& result = program.buffer(parts.result);
  const std::size_t count = instruction.op == "motley::part" ? 1 : parts.extents.size();
  return fmt::format("{}({}, {} elements, {} parts, {} before, {} after)", instruction.op,
                     dtype_name(result.dtype), result.elements(), count, parts.before, parts.after);
}

/// Returns "motley::put(f32, 2048 elements, 3 boxes)", whatever the size of the tensors.
std::string boxes_key(const DeviceProgram& program, const Instruction& instruction,
                      const BoxCopies& copies) {
  const DType dtype =
      copies.from.empty() ? DType::kNone : program.buffer(copies.from[0].first).dtype;
  return fmt::format("{}({}, {} elements, {} boxes)", instruction.op, dtype_name(dtype),
                     copies.elements, copies.from.size());
}

/// Returns the key of a draw, without its number and place, and with its result if it reads
/// nothing.
std::string drawn_key(const DeviceProgram& program, const Instruction& instruction) {
  std::string key;
  ArgumentList shaping = instruction.arguments;
  std::erase_if(shaping, [](const Argument& argument) {
    return std::holds_alternative<NumberArgument>(argument.value);
  });
  if (instruction.op == "motley::random" && !shaping.empty() && !instruction.outputs.empty())
    shaping.insert(shaping.begin() + 1, Argument{instruction.outputs[0]});
  append_arguments(key, program, shaping, false);
  return key;
}

}  // namespace

std::string cost_key(const DeviceProgram& program, const Instruction& instruction) {
  if (instruction.op == "motley::update" || instruction.op == "motley::direction")
    return update_key(program, instruction);
  if (instruction.op == "motley::apply")
    return fmt::format("motley::apply({}, {})", print_argument(instruction.arguments.at(0)),
                       sum_up(program, instruction, 1, 2));
  if (instruction.op == "motley::square_sums" || instruction.op == "motley::scaled_square_sums" ||
      instruction.op == "motley::average" || instruction.op == "motley::assign")
    return fmt::format("{}({})", instruction.op, sum_up(program, instruction, 0, 1));
  if (instruction.op == "motley::pack")
    return fmt::format("motley::pack({})", sum_up(program, instruction, 0, 1));
  if (const auto parts = find_tensor_parts(instruction))
    return parts_key(program, instruction, *parts);
  if (const auto copies = find_box_copies(instruction))
    return boxes_key(program, instruction, *copies);
  if (instruction.op == kBallot) return "motley::stop_request()";  // one number, too
  std::string key = instruction.full_name();
  key += '(';
  if (instruction.op == "motley::load" || instruction.op == "motley::receive") {
    for (const BufferId id : instruction.outputs) append_tensor(key, program.buffer(id));
  } else if (instruction.op == "motley::send") {
    for_each_buffer(instruction.arguments,
                    [&](BufferId id) { append_tensor(key, program.buffer(id)); });
  } else if (instruction.op == "motley::dropout" || instruction.op == "motley::random") {
    key += drawn_key(program, instruction);
  } else {
    append_arguments(key, program, instruction.arguments, instruction.op == "aten::pow");
  }
  key += ')';
  return key;
}

}  // namespace motley::program
