#include "motley/program/program_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>

#include "motley/base/line_cursor.h"
#include "motley/base/text.h"
#include "motley/program/program_verify.h"

namespace motley::program {
namespace {

constexpr std::string_view kVersion = "motley.program/1";
constexpr std::array<std::string_view, 8> kKindNames = {
    "parameter", "state", "model_buffer", "constant", "mirror", "input", "temporary", "carried"};
constexpr std::array<std::string_view, 4> kKeywordKinds = {"dtype", "layout", "device",
                                                           "memory_format"};
constexpr int kDeepestList = 16;

// ---- print

void print_arguments(std::string& out, const ArgumentList& arguments);

struct ArgumentPrinter {
  std::string& out;

  void operator()(const NoneArgument&) const { out += "none"; }
  void operator()(BufferId id) const { fmt::format_to(std::back_inserter(out), "%{}", id.value); }
  void operator()(bool value) const { out += value ? "true" : "false"; }
  void operator()(std::int64_t value) const {
    fmt::format_to(std::back_inserter(out), "{}", value);
  }
  void operator()(double value) const { out += print_float(value); }
  void operator()(const std::string& value) const { out += quote(value); }
  void operator()(const NumberArgument& number) const {
    out += "number(";
    std::visit(*this, number.value);
    out += ')';
  }
  void operator()(const KeywordArgument& keyword) const {
    fmt::format_to(std::back_inserter(out), "{}({})", keyword.kind, keyword.word);
  }
  void operator()(const ComplexArgument& number) const {
    out += "complex(" + print_float(number.real) + ", " + print_float(number.imaginary) + ")";
  }
  void operator()(const ArgumentList& list) const {
    out += '[';
    print_arguments(out, list);
    out += ']';
  }
};

void print_arguments(std::string& out, const ArgumentList& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (i > 0) out += ", ";
    std::visit(ArgumentPrinter{out}, arguments[i].value);
  }
}

void print_buffer(std::string& out, std::size_t id, const Buffer& buffer) {
  fmt::format_to(std::back_inserter(out), "buffer %{}: {} {}[{}]", id,
                 kKindNames[static_cast<std::size_t>(buffer.kind)], dtype_name(buffer.dtype),
                 fmt::join(buffer.shape, ", "));
  if (!buffer.name.empty()) out += " " + quote(buffer.name);
  if (!buffer.view_of.is_none())
    fmt::format_to(std::back_inserter(out), " view %{}", buffer.view_of.value);
  if (buffer.part)
    fmt::format_to(std::back_inserter(out), " part {} {} {} {}{}", buffer.part->before,
                   buffer.part->begin, buffer.part->extent, buffer.part->after,
                   buffer.part->is_copy ? " copy" : "");
  out += '\n';
}

template <typename Ids>
void print_ids(std::string& out, std::string_view word, char sign, const Ids& ids) {
  if (ids.empty()) return;
  fmt::format_to(std::back_inserter(out), " {}", word);
  for (const auto id : ids) fmt::format_to(std::back_inserter(out), " {}{}", sign, id.value);
}

void print_instruction(std::string& out, std::size_t id, const Instruction& instruction) {
  fmt::format_to(std::back_inserter(out), "{} ^{}: ", lane_name(instruction.lane), id);
  for (std::size_t i = 0; i < instruction.outputs.size(); ++i)
    fmt::format_to(std::back_inserter(out), "{}%{}", i > 0 ? ", " : "",
                   instruction.outputs[i].value);
  if (!instruction.outputs.empty()) out += " = ";
  out += instruction.op;
  if (!instruction.overload.empty()) out += "." + instruction.overload;
  out += '(';
  print_arguments(out, instruction.arguments);
  out += ')';
  if (!instruction.group.is_none())
    fmt::format_to(std::back_inserter(out), " group {}", instruction.group.value);
  if (instruction.returns_list) out += " list";
  if (instruction.is_carried) out += " carried";
  print_ids(out, "wait", '^', instruction.waits);
  if (!instruction.origin.is_none())
    fmt::format_to(std::back_inserter(out), " origin {}", instruction.origin.value);
  if (!instruction.label.empty()) out += " " + quote(instruction.label);
  print_ids(out, "free", '%', instruction.frees);
  out += '\n';
}

// ---- parse

template <typename Id>
bool parse_id(LineCursor& line, char sign, std::string_view wanted, Id& id) {
  std::int64_t value = 0;
  if (!line.take(sign)) return line.fail(wanted);
  if (!line.expect_integer(value)) return false;
  if (value < 0 || value > INT32_MAX) return line.fail(fmt::format("an id up to {}", INT32_MAX));
  id = Id(value);
  return true;
}

bool parse_buffer_id(LineCursor& line, BufferId& id) {
  return parse_id(line, '%', "a buffer such as %3", id);
}

bool parse_instruction_id(LineCursor& line, InstructionId& id) {
  return parse_id(line, '^', "an instruction such as ^3", id);
}

/// Reads the next id of a dense sequence.
template <typename Id>
bool expect_next(LineCursor& line, Id id, char sign, std::size_t next) {
  return id.index() == next ||
         line.fail(fmt::format("{}{} before this, ids being dense", sign, next));
}

/// Returns whether the text is a float and not an integer too large for 64 bits.
bool is_float_text(std::string_view text) {
  return text.find_first_of(".en") != std::string_view::npos;
}

bool parse_number(LineCursor& line, std::variant<std::int64_t, double>& value) {
  const std::string_view text = line.take_number();
  if (const auto integer = find_integer(text)) {
    value = *integer;
  } else if (const auto real = find_float(text); real && is_float_text(text)) {
    value = *real;
  } else {
    return line.fail(fmt::format("a number in place of '{}'", text));
  }
  return true;
}

bool parse_float(LineCursor& line, double& value) {
  std::variant<std::int64_t, double> number;
  if (!parse_number(line, number)) return false;
  const auto* real = std::get_if<double>(&number);
  if (real == nullptr) return line.fail("a float such as 2.0");
  value = *real;
  return true;
}

bool parse_complex(LineCursor& line, ComplexArgument& number) {
  return line.expect('(') && parse_float(line, number.real) && line.expect(',') &&
         parse_float(line, number.imaginary) && line.expect(')');
}

bool parse_arguments(LineCursor& line, char close, int depth, ArgumentList& arguments);

bool parse_word_argument(LineCursor& line, std::string_view word, Argument& argument) {
  if (word == "none") {
    argument.value = NoneArgument{};
  } else if (word == "true" || word == "false") {
    argument.value = word == "true";
  } else if (word == "inf" || word == "nan") {
    argument.value = *find_float(word);
  } else if (word == "number") {
    NumberArgument number;
    if (!line.expect('(') || !parse_number(line, number.value) || !line.expect(')')) return false;
    argument.value = number;
  } else if (word == "complex") {
    return parse_complex(line, argument.value.emplace<ComplexArgument>());
  } else if (std::find(kKeywordKinds.begin(), kKeywordKinds.end(), word) != kKeywordKinds.end()) {
    KeywordArgument keyword{std::string(word), ""};
    if (!line.expect('(')) return false;
    keyword.word = line.take_identifier();
    if (keyword.word.empty()) return line.fail("a word");
    if (!line.expect(')')) return false;
    argument.value = std::move(keyword);
  } else {
    return line.fail(fmt::format("an argument in place of '{}'", word));
  }
  return true;
}

bool parse_argument(LineCursor& line, int depth, Argument& argument) {
  const char next = line.peek();
  if (next == '%') return parse_buffer_id(line, argument.value.emplace<BufferId>());
  if (next == '"') return line.expect_quoted(argument.value.emplace<std::string>());
  if (line.take('[')) {
    if (depth == kDeepestList) return line.fail(fmt::format("lists {} deep at most", kDeepestList));
    return parse_arguments(line, ']', depth + 1, argument.value.emplace<ArgumentList>());
  }
  if ((next >= '0' && next <= '9') || next == '-') {
    std::variant<std::int64_t, double> number;
    if (!parse_number(line, number)) return false;
    std::visit([&](auto value) { argument.value = value; }, number);
    return true;
  }
  const std::string_view word = line.take_identifier();
  if (word.empty()) return line.fail("an argument");
  return parse_word_argument(line, word, argument);
}

/// Reads arguments up to and including `close`; the opening sign has been read.
bool parse_arguments(LineCursor& line, char close, int depth, ArgumentList& arguments) {
  if (line.take(close)) return true;
  do {
    if (!parse_argument(line, depth, arguments.emplace_back())) return false;
  } while (line.take(','));
  return line.take(close) || line.fail(fmt::format("',' or '{}'", close));
}

bool parse_type(LineCursor& line, Buffer& buffer) {
  const std::string_view word = line.take_identifier();
  const auto dtype = find_dtype(word);
  if (!dtype) return line.fail(fmt::format("a dtype such as f32 in place of '{}'", word));
  buffer.dtype = *dtype;
  if (!line.expect('[')) return false;
  if (line.take(']')) return true;
  do {
    if (!line.expect_integer(buffer.shape.emplace_back())) return false;
  } while (line.take(','));
  return line.take(']') || line.fail("',' or ']'");
}

bool parse_buffer(LineCursor& line, DeviceProgram& device) {
  BufferId id;
  if (!parse_buffer_id(line, id) || !expect_next(line, id, '%', device.buffers.size()))
    return false;
  if (!line.expect(':')) return false;
  const std::string_view word = line.take_identifier();
  const auto kind = std::find(kKindNames.begin(), kKindNames.end(), word);
  if (kind == kKindNames.end())
    return line.fail(fmt::format("one of {} in place of '{}'", fmt::join(kKindNames, " "), word));
  Buffer& buffer = device.buffers.emplace_back();
  buffer.kind = static_cast<BufferKind>(kind - kKindNames.begin());
  if (!parse_type(line, buffer)) return false;
  if (line.peek() == '"' && !line.expect_quoted(buffer.name)) return false;
  if (line.take_word("view") && !parse_buffer_id(line, buffer.view_of)) return false;
  if (line.take_word("part")) {
    program::Part& part = buffer.part.emplace();
    if (!line.expect_integer(part.before) || !line.expect_integer(part.begin) ||
        !line.expect_integer(part.extent) || !line.expect_integer(part.after))
      return false;
    part.is_copy = line.take_word("copy");
  }
  return line.expect_end();
}

bool parse_operator(LineCursor& line, Instruction& instruction) {
  const std::string_view scope = line.take_identifier();
  if (scope.empty() || !line.take(':') || !line.take(':'))
    return line.fail("an operator such as aten::mm");
  const std::string_view name = line.take_identifier();
  if (name.empty()) return line.fail("the operator's name");
  instruction.op.reserve(scope.size() + 2 + name.size());
  instruction.op.append(scope).append("::").append(name);
  if (line.take('.')) {
    instruction.overload = line.take_identifier();
    if (instruction.overload.empty()) return line.fail("the operator's overload");
  }
  return line.expect('(') && parse_arguments(line, ')', 0, instruction.arguments);
}

/// [group N] [list] [carried] [wait ^I ...] [origin N] ["LABEL"] [free %A ...]
bool parse_trailers(LineCursor& line, Instruction& instruction) {
  std::int64_t number = 0;
  if (line.take_word("group")) {
    if (!line.expect_integer(number)) return false;
    if (number < 0 || number > INT32_MAX) return line.fail("a group's number before this");
    instruction.group = GroupId(number);
  }
  instruction.returns_list = line.take_word("list");
  instruction.is_carried = line.take_word("carried");
  if (line.take_word("wait")) {
    do {
      if (!parse_instruction_id(line, instruction.waits.emplace_back())) return false;
    } while (line.peek() == '^');
  }
  if (line.take_word("origin")) {
    if (!line.expect_integer(number)) return false;
    if (number < 0 || number > INT32_MAX) return line.fail("an operator's number before this");
    instruction.origin = OpId(number);
  }
  if (line.peek() == '"' && !line.expect_quoted(instruction.label)) return false;
  if (line.take_word("free")) {
    do {
      if (!parse_buffer_id(line, instruction.frees.emplace_back())) return false;
    } while (line.peek() == '%');
  }
  return line.at_end() ||
         line.fail(
             "group, list, carried, wait, origin, a label or free, in this order, or the end");
}

bool parse_instruction(LineCursor& line, Lane lane, DeviceProgram& device) {
  InstructionId id;
  if (!parse_instruction_id(line, id) || !expect_next(line, id, '^', device.instructions.size()) ||
      !line.expect(':'))
    return false;
  Instruction& instruction = device.instructions.emplace_back();
  instruction.lane = lane;
  if (line.peek() == '%') {
    do {
      if (!parse_buffer_id(line, instruction.outputs.emplace_back())) return false;
    } while (line.take(','));
    if (!line.expect('=')) return false;
  }
  return parse_operator(line, instruction) && parse_trailers(line, instruction);
}

bool parse_group(LineCursor& line, Program& program) {
  std::int64_t number = 0;
  if (!line.expect_integer(number)) return false;
  if (number != static_cast<std::int64_t>(program.groups.size()))
    return line.fail(fmt::format("group {} before this, ids being dense", program.groups.size()));
  if (!line.expect(':')) return false;
  Group& group = program.groups.emplace_back();
  while (!line.at_end()) {
    if (!line.expect_integer(number)) return false;
    if (number < 0 || number > INT32_MAX) return line.fail("a rank before this");
    group.members.emplace_back(number);
  }
  return true;
}

bool parse_header(LineCursor& line, Program& program) {
  return line.expect_quoted(program.model_hash) && line.expect_word("plan") &&
         line.expect_quoted(program.plan_hash) && line.expect_word("global_batch") &&
         line.expect_integer(program.global_batch) &&
         (!line.take_word("micro_batches") || line.expect_integer(program.micro_batches)) &&
         line.expect_end();
}

bool parse_device(LineCursor& line, DeviceProgram& device) {
  return line.expect_quoted(device.device) && line.expect_word("samples") &&
         line.expect_integer(device.samples) && line.expect_word("first") &&
         line.expect_integer(device.first_sample) &&
         (device.is_elsewhere = line.take_word("elsewhere"), line.expect_end());
}

/// Reads a program in order: header, groups, then devices with buffers before instructions.
class Parser {
 public:
  bool parse_line(LineCursor& line, int number) {
    if (!has_header_) {
      has_header_ = true;
      return line.expect_word("model") && parse_header(line, program_);
    }
    if (program_.devices.empty() && line.take_word("group")) {
      lines_.groups.push_back(number);
      return parse_group(line, program_);
    }
    if (line.take_word("device")) {
      lines_.devices.push_back({number, {}, {}});
      return parse_device(line, program_.devices.emplace_back());
    }
    if (program_.devices.empty()) return line.fail("'group' or 'device'");
    DeviceProgram& device = program_.devices.back();
    if (device.instructions.empty() && line.take_word("buffer")) {
      lines_.devices.back().buffers.push_back(number);
      return parse_buffer(line, device);
    }
    lines_.devices.back().instructions.push_back(number);
    for (const Lane lane : {Lane::kCompute, Lane::kTransfer, Lane::kPeer})
      if (line.take_word(lane_name(lane))) return parse_instruction(line, lane, device);
    return line.fail(device.instructions.empty()
                         ? "'buffer', 'compute', 'transfer', 'peer' or 'device'"
                         : "'compute', 'transfer', 'peer' or 'device'");
  }

  bool has_header() const { return has_header_; }
  Program& program() { return program_; }
  const SourceLines& lines() const { return lines_; }

 private:
  bool has_header_ = false;
  Program program_;
  SourceLines lines_;
};

}  // namespace

std::string print_argument(const Argument& argument) {
  std::string out;
  std::visit(ArgumentPrinter{out}, argument.value);
  return out;
}

std::string print_program(const Program& program) {
  std::string out(kVersion);
  fmt::format_to(
      std::back_inserter(out), "\nmodel {} plan {} global_batch {}{}\n", quote(program.model_hash),
      quote(program.plan_hash), program.global_batch,
      program.micro_batches == 1 ? "" : fmt::format(" micro_batches {}", program.micro_batches));
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    fmt::format_to(std::back_inserter(out), "group {}:", g);
    for (const Rank rank : program.groups[g].members)
      fmt::format_to(std::back_inserter(out), " {}", rank.value);
    out += '\n';
  }
  for (const DeviceProgram& device : program.devices) {
    fmt::format_to(std::back_inserter(out), "device {} samples {} first {}{}\n",
                   quote(device.device), device.samples, device.first_sample,
                   device.is_elsewhere ? " elsewhere" : "");
    for (std::size_t i = 0; i < device.buffers.size(); ++i) print_buffer(out, i, device.buffers[i]);
    for (std::size_t i = 0; i < device.instructions.size(); ++i)
      print_instruction(out, i, device.instructions[i]);
  }
  return out;
}

Result<Program> parse_program(std::string_view text, const std::string& name) {
  Parser parser;
  MOTLEY_ASSIGN(const int last, parse_lines(text, name, {"program.parse", kVersion},
                                            [&](LineCursor& line, int number) {
                                              return parser.parse_line(line, number);
                                            }));
  if (!parser.has_header())
    return usage_error("program.parse",
                       fmt::format("{}:{}: found the end, wanted 'model'", name, last));
  MOTLEY_RETURN_IF_ERROR(verify_program_at(parser.program(), name, parser.lines()));
  return std::move(parser.program());
}

}  // namespace motley::program
