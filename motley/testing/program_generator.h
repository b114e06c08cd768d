#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/program/program.h"
#include "motley/testing/program_parts.h"

namespace motley::testing {

/// Draws programs that verify: one to four devices with equal instruction sequences and unequal
/// shares, with all kinds of arguments, views, sums over two groups, sends around rings of ranks
/// that overlap compute and each other, and frees. Same seed, same program.
class ProgramGenerator {
 public:
  explicit ProgramGenerator(std::uint64_t seed) : random_(seed) {}

  program::Program draw(std::size_t instructions) {
    draw_persistent();
    draw_load();
    while (device_.instructions.size() < instructions) draw_instruction();
    draw_end();
    program::Program program = spread(device_, random_);
    close_rings(program);
    return program;
  }

 private:
  using Instruction = program::Instruction;

  std::size_t below(std::size_t bound) { return static_cast<std::size_t>(random_.below(bound)); }
  bool chance(std::uint64_t one_in) { return random_.below(one_in) == 0; }

  BufferId add(program::Buffer buffer) {
    device_.buffers.push_back(std::move(buffer));
    return BufferId(static_cast<std::int64_t>(device_.buffers.size()) - 1);
  }

  void draw_persistent() {
    for (std::size_t i = 0, count = 1 + below(3); i < count; ++i) {
      const std::string name = "layer." + std::to_string(i) + ".\"weight\"\n";
      parameters_.push_back(add({program::BufferKind::kParameter, DType::kF32, {4, 3}, name, {}}));
      states_.push_back(
          add({program::BufferKind::kState, DType::kF32, {4, 3}, name + "/momentum", {}}));
    }
    ready_ = parameters_;
  }

  void draw_load() {
    const BufferId x = add({program::BufferKind::kInput, DType::kI64, {kBatch, 3}, "x", {}});
    append({Lane::kCompute, "motley::load", "", {{std::int64_t{0}}}, {x}});
    ready_.push_back(x);
  }

  InstructionId append(Instruction instruction) {
    device_.instructions.push_back(std::move(instruction));
    return InstructionId(static_cast<std::int64_t>(device_.instructions.size()) - 1);
  }

  void draw_instruction() {
    if (chance(6)) return draw_sum();
    if (chance(6)) return draw_ring();
    Instruction made{Lane::kCompute, "aten::some_op", chance(2) ? "" : "Tensor_out"};
    wait_for_some(made);
    for (std::size_t i = 1 + below(4); i > 0; --i)
      made.arguments.push_back(draw_argument(random_, ready_, 2));
    made.returns_list = chance(8);
    if (chance(2)) made.origin = OpId(static_cast<std::int64_t>(below(1000)));
    if (chance(2)) made.label = "h.0 \"x\"";
    std::vector<BufferId> made_buffers;
    for (std::size_t i = 1 + below(2); i > 0; --i) made_buffers.push_back(draw_output());
    made.outputs = made_buffers;
    ready_.insert(ready_.end(), made_buffers.begin(), made_buffers.end());
    if (chance(2)) free_one(made);
    append(std::move(made));
  }

  BufferId draw_output() {
    program::Buffer buffer{program::BufferKind::kTemporary, DType::kF32, {kBatch, 3}};
    if (chance(4)) buffer.shape = {};
    if (chance(4)) buffer.view_of = ready_[below(ready_.size())];
    return add(std::move(buffer));
  }

  /// Makes awaited exchanges usable in the compute lane.
  void wait_for_some(Instruction& instruction) {
    while (!pending_.empty() && chance(2)) {
      const auto [made, exchange] = pending_.front();
      instruction.waits.push_back(exchange);
      if (!made.is_none()) ready_.push_back(made);
      pending_.erase(pending_.begin());
    }
  }

  BufferId add_flat() { return add({program::BufferKind::kTemporary, DType::kF32, {24}}); }

  /// Draws a buffer to send and its producer: in the compute lane, or a receive not yet awaited.
  std::pair<BufferId, InstructionId> draw_flat() {
    if (!received_.empty() && chance(2)) {
      const auto found = received_.back();
      received_.pop_back();
      return found;
    }
    const BufferId flat = add_flat();
    const InstructionId packed = append(
        {Lane::kCompute, "motley::pack", "", {{program::ArgumentList{{parameters_[0]}}}}, {flat}});
    return {flat, packed};
  }

  /// Sends to the rank at a distance (close_rings makes ranks of it) and receives from the one
  /// before. Nothing comes between, so that no device waits for itself around the ring.
  void draw_ring() {
    const auto distance = static_cast<std::int64_t>(1 + below(2));
    const auto [flat, made] = draw_flat();
    Instruction send{Lane::kPeer, "motley::send", "", {{flat}, {distance}}};
    send.waits = {made};
    const bool frees = chance(2);
    if (frees) send.frees = {flat};
    const BufferId got = add_flat();
    Instruction receive{Lane::kPeer, "motley::receive", "", {{distance}}, {got}};
    if (chance(2) && device_.instructions[made.index()].lane == Lane::kCompute)
      receive.waits = {made};
    pending_.emplace_back(frees ? BufferId() : flat, append(std::move(send)));
    const InstructionId received = append(std::move(receive));
    if (chance(3)) {
      received_.emplace_back(got, received);
    } else {
      pending_.emplace_back(got, received);
    }
  }

  /// A single device has no peer: adds a second one for its sends.
  static void close_rings(program::Program& program) {
    const auto has_rings = [](const program::DeviceProgram& device) {
      for (const Instruction& each : device.instructions)
        if (each.lane == Lane::kPeer) return true;
      return false;
    };
    if (program.devices.size() == 1 && has_rings(program.devices[0])) {
      program.devices.push_back(program.devices[0]);
      program::DeviceProgram& second = program.devices[1];
      second.device = "second:0";
      second.first_sample = program.global_batch;
      program.global_batch += second.samples;
      for (program::Group& group : program.groups) group.members = {Rank(0), Rank(1)};
    }
    const auto ranks = static_cast<std::int64_t>(program.devices.size());
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      for (Instruction& each : program.devices[static_cast<std::size_t>(rank)].instructions) {
        if (each.lane != Lane::kPeer) continue;
        auto& peer = std::get<std::int64_t>(each.arguments.back().value);
        const std::int64_t distance = 1 + peer % (ranks - 1);
        peer = (rank + (each.outputs.empty() ? distance : ranks - distance)) % ranks;
      }
  }

  void draw_sum() {
    const auto [flat, made] = draw_flat();
    Instruction sum{Lane::kTransfer, "motley::all_reduce", "", {{flat}}};
    sum.group = GroupId(static_cast<std::int64_t>(below(2)));
    sum.waits = {made};
    sum.label = "bucket";
    pending_.emplace_back(flat, append(std::move(sum)));
  }

  void free_one(Instruction& instruction) {
    const std::size_t at = below(ready_.size());
    const program::BufferKind kind = device_.buffer(ready_[at]).kind;
    if (kind != program::BufferKind::kTemporary && kind != program::BufferKind::kInput) return;
    instruction.frees = {ready_[at]};
    ready_.erase(ready_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  void draw_end() {
    Instruction update{Lane::kCompute, "motley::update"};
    for (const auto& [flat, transfer] : pending_) update.waits.push_back(transfer);
    update.arguments = {{std::string("sgd")}};
    for (const auto& ids : {parameters_, parameters_, states_}) {
      program::ArgumentList list;
      for (const BufferId id : ids) list.push_back({id});
      update.arguments.push_back({std::move(list)});
    }
    append(std::move(update));
  }

  SplitMix64 random_;
  program::DeviceProgram device_;
  std::vector<BufferId> parameters_, states_;
  std::vector<BufferId> ready_;                               // usable by the compute lane
  std::vector<std::pair<BufferId, InstructionId>> pending_;   // exchanges not awaited
  std::vector<std::pair<BufferId, InstructionId>> received_;  // not yet sent on
};

}  // namespace motley::testing
