#include "motley/synth/step/program_builder.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

namespace motley::synth {

using program::Instruction;

void ProgramBuilder::reserve(std::size_t instructions) {
  program_.instructions.reserve(instructions);
  program_.buffers.reserve(instructions);
  for (std::vector<InstructionId>* each : {&computed_, &transferred_, &received_})
    each->reserve(instructions);
}

BufferId ProgramBuilder::add_buffer(program::Buffer buffer) {
  const bool lives_on = buffer.kind != program::BufferKind::kTemporary &&
                        buffer.kind != program::BufferKind::kInput && !buffer.name.empty();
  if (lives_on) {
    const BufferId next(program_.buffers.size());
    const auto [known, is_new] = persistent_.try_emplace(buffer.name, next);
    if (!is_new) return known->second;
  }
  program_.buffers.push_back(std::move(buffer));
  computed_.emplace_back();
  transferred_.emplace_back();
  received_.emplace_back();
  return BufferId(program_.buffers.size() - 1);
}

BufferId ProgramBuilder::add_temporary(DType dtype, Shape shape, BufferId base) {
  program::Buffer temporary{program::BufferKind::kTemporary, dtype, std::move(shape)};
  if (!base.is_none()) temporary.view_of = program::storage_of(program_, base);
  return add_buffer(std::move(temporary));
}

BufferId ProgramBuilder::add_like(BufferId like) {
  return add_temporary(buffer(like).dtype, buffer(like).shape);
}

InstructionId ProgramBuilder::append(Instruction instruction) {
  program_.instructions.push_back(std::move(instruction));
  return InstructionId(program_.instructions.size() - 1);
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
  program::for_each_buffer(instruction.arguments, [&](BufferId buffer) {
    const InstructionId received = received_[program::storage_of(program_, buffer).index()];
    if (received.is_none()) return;
    InstructionId& waited = waited_from_[program::peer_of(program_.instructions[received.index()])];
    if (received <= waited) return;
    instruction.waits.push_back(received);
    waited = received;
  });
  for (const InstructionId send : std::exchange(awaited_, {})) instruction.waits.push_back(send);
  instruction.lane = Lane::kCompute;
  const InstructionId id = append(std::move(instruction));
  last_computed_ = id;
  for (const BufferId output : program_.instructions.back().outputs) computed_[output.index()] = id;
}

void ProgramBuilder::compute(std::string_view name, Arguments arguments,
                             std::vector<BufferId> outputs, std::string label, OpId origin) {
  const std::size_t dot = name.find('.');
  Instruction made;
  made.op = name.substr(0, dot);
  if (dot != std::string_view::npos) made.overload = name.substr(dot + 1);
  made.arguments = std::move(arguments);
  made.outputs = std::move(outputs);
  made.label = std::move(label);
  made.origin = origin;
  compute(std::move(made));
}

BufferId ProgramBuilder::make(std::string_view name, Arguments arguments, DType dtype, Shape shape,
                              const std::string& label) {
  const BufferId made = add_temporary(dtype, std::move(shape));
  compute(name, std::move(arguments), {made}, label);
  return made;
}

BufferId ProgramBuilder::zeros(const Shape& shape, DType dtype, const std::string& label) {
  return make("aten::zeros", zeros_arguments(shape, dtype), dtype, shape, label);
}

BufferId ProgramBuilder::view(BufferId of, Shape shape, const std::string& label) {
  const BufferId seen = add_temporary(buffer(of).dtype, shape, of);
  compute("aten::view", {{of}, {integers(shape)}}, {seen}, label);
  return seen;
}

BufferId ProgramBuilder::part(BufferId of, const graph::Slab& slab, std::int64_t begin, Shape shape,
                              const std::string& label) {
  return make("motley::part", {{of}, {slab.before}, {begin}, {slab.after}}, buffer(of).dtype,
              std::move(shape), label);
}

BufferId ProgramBuilder::pack(const std::vector<BufferId>& tensors, DType dtype,
                              const std::string& label) {
  std::int64_t elements = 0;
  for (const BufferId each : tensors) elements += buffer(each).elements();
  return make("motley::pack", {{buffer_list(tensors)}}, dtype, {elements}, label);
}

BufferId ProgramBuilder::join_rows(const std::vector<BufferId>& pieces, const std::string& label) {
  if (pieces.size() == 1) return pieces.front();
  Shape shape = buffer(pieces.front()).shape;
  shape[1] = 0;
  for (const BufferId each : pieces) shape[1] += buffer(each).shape[1];
  return make("aten::cat", {{buffer_list(pieces)}, {std::int64_t{1}}}, buffer(pieces.front()).dtype,
              std::move(shape), label);
}

BufferId ProgramBuilder::cut(BufferId from, const graph::Slab& slab, const Shape& extents,
                             const std::string& label) {
  const std::int64_t extent = std::accumulate(extents.begin(), extents.end(), std::int64_t{0});
  return make("motley::cut", {{from}, {slab.before}, {integers(extents)}, {slab.after}},
              buffer(from).dtype, {slab.before * extent * slab.after}, label);
}

BufferId ProgramBuilder::join(BufferId flat, const graph::Slab& slab, const Shape& extents,
                              Shape shape, const std::string& label) {
  if (slab.before == 1) return unpack(flat, {std::move(shape)}, label).front();
  return make("motley::join", {{flat}, {slab.before}, {integers(extents)}, {slab.after}},
              buffer(flat).dtype, std::move(shape), label);
}

std::vector<BufferId> ProgramBuilder::unpack(BufferId flat, const std::vector<Shape>& shapes,
                                             const std::string& label) {
  const DType dtype = buffer(flat).dtype;
  std::vector<BufferId> views;
  for (const Shape& shape : shapes) views.push_back(add_temporary(dtype, shape, flat));
  compute("motley::unpack", {{flat}}, views, label);
  return views;
}

void ProgramBuilder::all_reduce(BufferId buffer, std::string label) {
  transferred_[buffer.index()] = transfer("motley::all_reduce", buffer, {}, {}, std::move(label));
}

BufferId ProgramBuilder::exchange(std::string_view op, BufferId from, std::vector<Arguments> counts,
                                  std::int64_t elements, std::string label) {
  const BufferId to = add_temporary(buffer(from).dtype, {elements});
  transferred_[to.index()] = transfer(op, from, std::move(counts), {to}, std::move(label));
  return to;
}

InstructionId ProgramBuilder::transfer(std::string_view op, BufferId from,
                                       std::vector<Arguments> counts, std::vector<BufferId> outputs,
                                       std::string label) {
  Instruction made;
  made.lane = Lane::kTransfer;
  const auto [name, method] = program::split_collective_name(op);
  made.op = name;
  if (method != ExchangeMethod::kNative) made.overload = exchange_method_name(method);
  made.arguments = {{from}};
  for (Arguments& list : counts) made.arguments.push_back({std::move(list)});
  made.outputs = std::move(outputs);
  made.group = group_;
  made.waits = writers_of(from);
  std::erase_if(made.waits, [&](InstructionId id) {
    return program_.instructions[id.index()].lane == Lane::kTransfer;
  });
  made.label = std::move(label);
  return append(std::move(made));
}

std::vector<InstructionId> ProgramBuilder::writers_of(BufferId buffer) const {
  const std::size_t storage = program::storage_of(program_, buffer).index();
  std::vector<InstructionId> writers;
  for (const InstructionId id :
       {computed_[buffer.index()], computed_[storage], transferred_[storage], received_[storage]})
    if (!id.is_none() && std::find(writers.begin(), writers.end(), id) == writers.end())
      writers.push_back(id);
  return writers;
}

InstructionId ProgramBuilder::send(BufferId buffer, Rank to, std::string label) {
  Instruction made;
  made.lane = Lane::kPeer;
  made.op = "motley::send";
  made.arguments = {{buffer}, {std::int64_t{to.value}}};
  made.waits = writers_of(buffer);
  made.label = std::move(label);
  return append(std::move(made));
}

BufferId ProgramBuilder::receive(Rank from, DType dtype, Shape shape, InstructionId after,
                                 std::string label) {
  Instruction made;
  made.lane = Lane::kPeer;
  made.op = "motley::receive";
  made.arguments = {{std::int64_t{from.value}}};
  const BufferId received = add_temporary(dtype, std::move(shape));
  made.outputs = {received};
  if (!after.is_none()) made.waits = {after};
  made.label = std::move(label);
  received_[received.index()] = append(std::move(made));
  return received;
}

void ProgramBuilder::set_origins(std::size_t from, OpId origin) {
  for (std::size_t i = from; i < program_.instructions.size(); ++i)
    if (!program_.instructions[i].origin.is_none()) program_.instructions[i].origin = origin;
}

void ProgramBuilder::set_part(BufferId buffer, program::Part part) {
  program_.buffers[buffer.index()].part = part;
}

void ProgramBuilder::place_frees() {
  constexpr std::size_t kNever = SIZE_MAX;
  const std::size_t buffers = program_.buffers.size();
  std::vector<std::size_t> last_use(buffers, kNever);  // compute instruction
  std::vector<InstructionId> exchanged(buffers);       // last transfer
  std::vector<std::vector<InstructionId>> sends(buffers);
  std::vector<std::pair<InstructionId, std::size_t>> finished;  // transfer, compute that waited
  std::map<InstructionId, std::size_t> over;                    // send, compute that waited
  for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
    const Instruction& instruction = program_.instructions[i];
    const bool is_transfer = instruction.lane == Lane::kTransfer;
    const bool is_peer = instruction.lane == Lane::kPeer;
    const auto touch = [&](BufferId id) {
      for (const BufferId each : {id, program::storage_of(program_, id)}) {
        const InstructionId here(i);
        if (is_transfer) exchanged[each.index()] = here;
        if (is_peer && instruction.outputs.empty()) sends[each.index()].push_back(here);
        if (!is_transfer && !is_peer) last_use[each.index()] = i;
      }
    };
    program::for_each_buffer(instruction.arguments, touch);
    for (const BufferId output : instruction.outputs) touch(output);
    if (is_transfer || is_peer) continue;
    for (const InstructionId wait : instruction.waits) {
      const bool is_exchange = program_.instructions[wait.index()].lane == Lane::kTransfer;
      if (is_exchange) finished.emplace_back(wait, i);
      if (!is_exchange) over.try_emplace(wait, i);
    }
  }
  for (std::size_t b = 0; b < buffers; ++b) {
    if (program_.buffers[b].kind != program::BufferKind::kTemporary) continue;
    std::size_t at = last_use[b];
    bool is_sent_to_the_end = false;
    for (const InstructionId send : sends[b]) {
      const auto waited = over.find(send);
      is_sent_to_the_end = is_sent_to_the_end || waited == over.end();
      if (waited != over.end()) at = at == kNever ? waited->second : std::max(at, waited->second);
    }
    if (is_sent_to_the_end) continue;
    if (!exchanged[b].is_none()) {
      const auto waited = std::lower_bound(
          finished.begin(), finished.end(), exchanged[b],
          [](const auto& entry, InstructionId transfer) { return entry.first < transfer; });
      if (waited == finished.end()) continue;  // lives to the end of the step
      at = at == kNever ? waited->second : std::max(at, waited->second);
    }
    if (at == kNever) continue;
    program_.instructions[at].frees.push_back(BufferId(b));
  }
}

program::DeviceProgram ProgramBuilder::finish() {
  place_frees();
  return std::move(program_);
}

}  // namespace motley::synth
