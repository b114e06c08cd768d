#include "motley/cost/operators/time_source.h"

#include <algorithm>
#include <string>

#include "motley/program/program_text.h"

namespace motley::cost {
namespace {

DTypes read_dtypes(const program::DeviceProgram& program, const program::Instruction& instruction) {
  DTypes reads = 0;
  program::for_each_buffer(instruction.arguments, [&](BufferId id) {
    reads = dtypes_with(reads, program.buffer(id).dtype);
  });
  return reads != 0 ? reads : dtypes_with(0, instruction_dtype(program, instruction));
}

}  // namespace

DType instruction_dtype(const program::DeviceProgram& program,
                        const program::Instruction& instruction) {
  if (!instruction.outputs.empty()) return program.buffer(instruction.outputs[0]).dtype;
  DType dtype = DType::kF32;
  bool is_first = true;
  program::for_each_buffer(instruction.arguments, [&](BufferId id) {
    if (is_first) dtype = program.buffer(id).dtype;
    is_first = false;
  });
  return dtype;
}

MeasuredTimes::MeasuredTimes(const std::vector<OpEntry>& entries) {
  by_key_.reserve(entries.size());
  for (const OpEntry& entry : entries)
    by_key_.emplace(entry.key, Answer{entry.median, entry.scratch, entry.spread});
}

Result<MeasuredTimes> MeasuredTimes::load(const ProfileStore& store, const DeviceKey& device) {
  MOTLEY_ASSIGN(const std::vector<OpEntry> entries, store.ops(device));
  return MeasuredTimes(entries);
}

std::vector<std::optional<TimeSource::Answer>> MeasuredTimes::times(
    const program::DeviceProgram& program) const {
  std::vector<std::optional<Answer>> answers;
  answers.reserve(program.instructions.size());
  for (const program::Instruction& instruction : program.instructions) {
    std::optional<Answer>& answer = answers.emplace_back();
    if (instruction.lane != Lane::kCompute) {
      answer = Answer{};
    } else if (const auto found = by_key_.find(program::cost_key(program, instruction));
               found != by_key_.end()) {
      answer = found->second;
    }
  }
  return answers;
}

std::vector<std::optional<TimeSource::Answer>> WorkTimes::times(
    const program::DeviceProgram& program) const {
  return times(program, instruction_work(program, *graph_));
}

std::vector<std::optional<TimeSource::Answer>> WorkTimes::times(
    const program::DeviceProgram& program, const std::vector<OperatorWork>& works) const {
  std::vector<std::optional<Answer>> answers;
  answers.reserve(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    const program::Instruction& instruction = program.instructions[i];
    std::optional<Answer>& made = answers.emplace_back(Answer{});
    if (instruction.lane != Lane::kCompute) continue;
    const std::string name = instruction.full_name();
    made = answer(name, instruction_dtype(program, instruction), works[i]);
    made->scratch =
        std::max(made->scratch, scratch(name, read_dtypes(program, instruction), works[i]));
  }
  return answers;
}

std::vector<std::optional<TimeSource::Answer>> FirstKnown::times(
    const program::DeviceProgram& program) const {
  std::vector<std::optional<Answer>> answers = first_->times(program);
  std::vector<std::optional<Answer>> others;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (answers[i]) continue;
    if (others.empty()) others = second_->times(program);
    answers[i] = others[i];
  }
  return answers;
}

std::vector<std::optional<TimeSource::Answer>> AtLeast::times(
    const program::DeviceProgram& program) const {
  std::vector<std::optional<Answer>> answers = source_->times(program);
  const std::vector<std::optional<Answer>> least = least_->times(program);
  for (std::size_t i = 0; i < answers.size(); ++i)
    if (answers[i]) answers[i]->seconds = std::max(answers[i]->seconds, least[i]->seconds);
  return answers;
}

}  // namespace motley::cost
