#include "motley/synth/program_builder.h"

#include <algorithm>
#include <cstdint>
#include <utility>

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
  constexpr std::size_t kNever = SIZE_MAX;
  const std::size_t buffers = program_.buffers.size();
  std::vector<std::size_t> last_use(buffers, kNever);           // compute instruction
  std::vector<InstructionId> exchanged(buffers);                // last transfer
  std::vector<std::pair<InstructionId, std::size_t>> finished;  // transfer, compute that waited
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    const bool is_transfer = instruction.lane == program::Lane::kTransfer;
    const auto touch = [&](BufferId id) {
      for (const BufferId each : {id, program::storage_of(program_, id)}) {
        if (is_transfer) exchanged[each.index()] = InstructionId(static_cast<std::int64_t>(i));
        if (!is_transfer) last_use[each.index()] = i;
      }
    };
    program::for_each_buffer(instruction.arguments, touch);
    for (const BufferId output : instruction.outputs) touch(output);
    if (!is_transfer && !instruction.waits.empty())
      finished.emplace_back(instruction.waits.back(), i);
  }
  for (std::size_t b = 0; b < buffers; ++b) {
    if (program_.buffers[b].kind != program::BufferKind::kTemporary) continue;
    std::size_t at = last_use[b];
    if (!exchanged[b].is_none()) {
      const auto over = std::lower_bound(
          finished.begin(), finished.end(), exchanged[b],
          [](const auto& entry, InstructionId transfer) { return entry.first < transfer; });
      if (over == finished.end()) continue;  // it lives to the end of the step
      at = at == kNever ? over->second : std::max(at, over->second);
    }
    if (at == kNever) continue;
    program_.instructions[at].frees.push_back(BufferId(static_cast<std::int64_t>(b)));
  }
}

program::DeviceProgram ProgramBuilder::finish() {
  place_frees();
  return std::move(program_);
}

}  // namespace motley::synth
