#include "motley/synth/noise/square_writer.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "motley/program/square_count.h"

namespace motley::synth {
namespace {

/// Position of the first square sum among the report's arguments.
constexpr std::size_t kReportSquares = 4;

}  // namespace

using program::Argument;
using program::ArgumentList;
using program::DeviceProgram;
using program::Instruction;

const ArgumentList* list_at(const Instruction& instruction, std::size_t position) {
  return position < instruction.arguments.size()
             ? std::get_if<ArgumentList>(&instruction.arguments[position].value)
             : nullptr;
}

BufferId buffer_of(const Argument& argument) {
  const auto* id = std::get_if<BufferId>(&argument.value);
  return id == nullptr ? BufferId() : *id;
}

tl::unexpected<Error> refuse_squares(const DeviceProgram& program, const std::string& what) {
  return usage_error("synth.squares", fmt::format("{}: noise of gradients cannot be seen: {}",
                                                  program.device, what));
}

// docs/formats/program.md lists the arguments of updates.
Result<std::map<BufferId, Updated>> find_updated(const DeviceProgram& program) {
  std::map<BufferId, Updated> found;
  for (const Instruction& each : program.instructions) {
    if (each.op != "motley::update" && each.op != "motley::direction") continue;
    const ArgumentList& gradients = *list_at(each, 2);
    if (!buffer_of(each.arguments.at(6)).is_none())
      return refuse_squares(program, "gradients have a loss scale; leave --loss-scale out");
    const auto kind = std::get<std::string>(each.arguments.at(0).value);
    const bool has_moments = kind == "adam" || kind == "adamw";
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      Updated& updated = found[buffer_of(gradients[i])];
      if (!has_moments) continue;
      updated.second_moment = buffer_of(list_at(each, 4)->at(i));
      const ArgumentList& constants = *list_at(each, 10);
      updated.constants = {constants.at(1), constants.at(2)};
    }
  }
  return found;
}

void SquareWriter::add(BufferId gradient, const Updated& updated) {
  const bool has_moments = !updated.second_moment.is_none();
  for (Counted& each : counted_)
    if (each.constants == updated.constants && each.moments.empty() != has_moments)
      return put(gradient, updated, each);
  put(gradient, updated, counted_.emplace_back(Counted{{}, {}, updated.constants}));
}

void SquareWriter::put(BufferId gradient, const Updated& updated, Counted& into) {
  into.gradients.push_back({gradient});
  if (!updated.second_moment.is_none()) into.moments.push_back({updated.second_moment});
}

std::vector<Instruction> SquareWriter::write(ArgumentList& sums) {
  std::vector<Instruction> written;
  for (const Counted& each : counted_) {
    program_.buffers.push_back({.kind = program::BufferKind::kTemporary,
                                .dtype = DType::kF64,
                                .shape = {static_cast<std::int64_t>(each.gradients.size())},
                                .name = "",
                                .view_of = {},
                                .part = {}});
    Instruction& sum = written.emplace_back();
    sum.op = each.moments.empty() ? "motley::square_sums" : "motley::scaled_square_sums";
    sum.arguments = {{each.gradients}};
    if (!each.moments.empty()) {
      sum.arguments.push_back({each.moments});
      sum.arguments.insert(sum.arguments.end(), each.constants.begin(), each.constants.end());
    }
    sum.outputs = {BufferId(program_.buffers.size() - 1)};
    sum.label = program::kSquaresLabel;
    sums.push_back({sum.outputs[0]});
  }
  return written;
}

Result<void> report_squares(const Squares& squares, DeviceProgram& program) {
  Instruction& report = program.instructions.back();
  if (report.op != "motley::report" || report.arguments.size() != kReportSquares)
    return refuse_squares(program, "its last instruction is no report");
  ArgumentList samples;
  for (const std::int64_t count : squares.samples) samples.push_back({count});
  report.arguments.push_back({squares.whole});
  report.arguments.push_back({std::move(samples)});
  for (const ArgumentList& piece : squares.pieces) report.arguments.push_back({piece});
  for (std::size_t i = kReportSquares; i < report.arguments.size(); ++i)
    for (const Argument& each : *list_at(report, i))
      if (!buffer_of(each).is_none()) report.frees.push_back(buffer_of(each));
  return {};
}

void insert_before(std::map<std::size_t, std::vector<Instruction>> before, DeviceProgram& program) {
  std::vector<InstructionId> places;
  std::vector<Instruction> made;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    if (const auto own = before.find(i); own != before.end())
      for (Instruction& each : own->second) made.push_back(std::move(each));
    places.emplace_back(static_cast<std::int64_t>(made.size()));
    made.push_back(std::move(program.instructions[i]));
    for (InstructionId& wait : made.back().waits) wait = places[wait.index()];
  }
  program.instructions = std::move(made);
}

}  // namespace motley::synth
