#include "motley/synth/program_builder.h"

#include <algorithm>

namespace motley::synth {

using program::Instruction;

BufferId ProgramBuilder::add_buffer(program::Buffer buffer) {
  program_.buffers.push_back(std::move(buffer));
  computed_.emplace_back();
  transferred_.emplace_back();
  return BufferId(static_cast<std::int64_t>(program_.buffers.size()) - 1);
}

BufferId ProgramBuilder::add_temporary(DType dtype, std::vector<std::int64_t> shape,
                                       BufferId base) {
  program::Buffer temporary{program::BufferKind::kTemporary, dtype, std::move(shape)};
  if (!base.is_none()) temporary.view_of = program::storage_of(program_, base);
  return add_buffer(std::move(temporary));
}

InstructionId ProgramBuilder::append(Instruction instruction) {
  program_.instructions.push_back(std::move(instruction));
  return InstructionId(static_cast<std::int64_t>(program_.instructions.size()) - 1);
}

void ProgramBuilder::compute(Instruction instruction) {
  InstructionId last = waited_;
  program::for_each_buffer(instruction.arguments, [&](BufferId id) {
    last = std::max(last, transferred_[program::storage_of(program_, id).index()]);
  });
  if (last > waited_) {
    instruction.waits.push_back(last);
    waited_ = last;
  }
  instruction.lane = program::Lane::kCompute;
  const std::vector<BufferId> outputs = instruction.outputs;
  const InstructionId id = append(std::move(instruction));
  for (const BufferId output : outputs) computed_[output.index()] = id;
}

void ProgramBuilder::all_reduce(BufferId buffer, std::string label) {
  Instruction sum;
  sum.lane = program::Lane::kTransfer;
  sum.op = "motley::all_reduce";
  sum.arguments = {{buffer}};
  sum.group = GroupId(0);
  sum.waits = {computed_[buffer.index()]};
  sum.label = std::move(label);
  transferred_[buffer.index()] = append(std::move(sum));
}

void ProgramBuilder::exchange(std::string op, BufferId from,
                              std::vector<program::ArgumentList> counts, BufferId to,
                              std::string label) {
  Instruction made;
  made.lane = program::Lane::kTransfer;
  made.op = std::move(op);
  made.arguments = {{from}};
  for (program::ArgumentList& list : counts) made.arguments.push_back({std::move(list)});
  made.outputs = {to};
  made.group = GroupId(0);
  made.waits = {computed_[from.index()]};
  made.label = std::move(label);
  transferred_[to.index()] = append(std::move(made));
}

void ProgramBuilder::set_part(BufferId buffer, program::Part part) {
  program_.buffers[buffer.index()].part = part;
}

void ProgramBuilder::place_frees() {
  std::vector<char> done(program_.buffers.size(), 0);
  std::vector<BufferId> sent(program_.buffers.size());  // by what an exchange gives: what it took
  for (const Instruction& instruction : program_.instructions)
    if (instruction.lane == program::Lane::kTransfer && !instruction.outputs.empty())
      program::for_each_buffer(instruction.arguments,
                               [&](BufferId id) { sent[instruction.outputs[0].index()] = id; });
  for (std::size_t i = program_.instructions.size(); i-- > 0;) {
    Instruction& instruction = program_.instructions[i];
    if (instruction.lane != program::Lane::kCompute) continue;
    const auto touch = [&](BufferId id) {
      if (done[id.index()]) return;
      done[id.index()] = 1;
      if (program_.buffer(id).kind == program::BufferKind::kTemporary)
        instruction.frees.push_back(id);
    };
    const auto touch_with_root = [&](BufferId id) {
      touch(id);
      touch(program::storage_of(program_, id));
    };
    program::for_each_buffer(instruction.arguments, [&](BufferId id) {
      touch_with_root(id);
      if (!sent[id.index()].is_none()) touch_with_root(sent[id.index()]);
    });
    for (const BufferId output : instruction.outputs) touch_with_root(output);
    std::sort(instruction.frees.begin(), instruction.frees.end());
  }
}

program::DeviceProgram ProgramBuilder::finish() {
  place_frees();
  return std::move(program_);
}

}  // namespace motley::synth
