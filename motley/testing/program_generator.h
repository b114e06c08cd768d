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
/// shares, arguments of every kind, views, sums over two groups that overlap compute, and frees.
/// Same seed, same program.
class ProgramGenerator {
 public:
  explicit ProgramGenerator(std::uint64_t seed) : random_(seed) {}

  program::Program draw(std::size_t instructions) {
    draw_persistent();
    draw_load();
    while (device_.instructions.size() < instructions) draw_instruction();
    draw_end();
    return spread(device_, random_);
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

  /// A compute instruction makes what it waits for usable in its lane.
  void wait_for_some(Instruction& instruction) {
    while (!pending_.empty() && chance(2)) {
      instruction.waits.push_back(pending_.front().second);
      ready_.push_back(pending_.front().first);
      pending_.erase(pending_.begin());
    }
  }

  void draw_sum() {
    const BufferId flat = add({program::BufferKind::kTemporary, DType::kF32, {24}});
    const InstructionId packed = append(
        {Lane::kCompute, "motley::pack", "", {{program::ArgumentList{{parameters_[0]}}}}, {flat}});
    Instruction sum{Lane::kTransfer, "motley::all_reduce", "", {{flat}}};
    sum.group = GroupId(static_cast<std::int64_t>(below(2)));
    sum.waits = {packed};
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
  std::vector<BufferId> ready_;                              // usable by the compute lane
  std::vector<std::pair<BufferId, InstructionId>> pending_;  // sums not waited for
};

}  // namespace motley::testing
