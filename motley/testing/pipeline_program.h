#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "motley/program/program.h"

namespace motley::testing {

/// A program with one pipeline stage per device: an instruction per pass, labelled with nanoseconds
/// (LabelCost), and messages of `message` bytes. Either 1F1B, or forward only.
class PipelineProgram {
 public:
  struct Stage {
    std::int64_t forward = 0, backward = 0;  ///< ns per micro-batch
  };
  PipelineProgram(std::vector<Stage> stages, std::int64_t message, std::int64_t micro_batches)
      : stages_(std::move(stages)), message_(message), micro_batches_(micro_batches) {}

  /// Stage s of S runs S-1-s forwards, then forwards and backwards alternately, then backwards.
  program::Program one_forward_one_backward() const {
    return build([&](std::size_t s) {
      const auto depth = static_cast<std::int64_t>(stages_.size() - 1 - s);
      std::vector<bool> order;  // true: a forward
      std::int64_t forwards = 0, backwards = 0;
      while (backwards < micro_batches_) {
        const bool is_forward = forwards < micro_batches_ && forwards - backwards <= depth;
        order.push_back(is_forward);
        ++(is_forward ? forwards : backwards);
      }
      return order;
    });
  }
  program::Program forward_only() const {
    return build([&](std::size_t) {
      return std::vector<bool>(static_cast<std::size_t>(micro_batches_), true);
    });
  }

 private:
  template <typename Order>
  program::Program build(const Order& order) const {
    program::Program program;
    program.global_batch = micro_batches_;
    program.micro_batches = micro_batches_;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      program::DeviceProgram& device = program.devices.emplace_back();
      device.device = "d" + std::to_string(s) + ":0";
      for (const bool is_forward : order(s)) add(device, s, is_forward);
    }
    return program;
  }

  /// Receives, computes, sends; frees what arrives and leaves at its last use.
  void add(program::DeviceProgram& device, std::size_t s, bool is_forward) const {
    const auto buffer = [&] {
      device.buffers.push_back({program::BufferKind::kTemporary, DType::kU8, {message_}});
      return BufferId(static_cast<std::int64_t>(device.buffers.size()) - 1);
    };
    const auto append = [&](program::Instruction instruction) {
      device.instructions.push_back(std::move(instruction));
      return InstructionId(static_cast<std::int64_t>(device.instructions.size()) - 1);
    };
    const std::size_t last = stages_.size() - 1;
    const bool has_source = s != (is_forward ? 0 : last), has_target = s != (is_forward ? last : 0);
    const auto rank = [&](bool is_next) {
      return static_cast<std::int64_t>(is_next ? s + 1 : s - 1);
    };
    program::Instruction made{Lane::kCompute, is_forward ? "aten::forward" : "aten::backward"};
    const Stage& stage = stages_[s];
    made.label = std::to_string(is_forward ? stage.forward : stage.backward);
    if (has_source) {
      const BufferId got = buffer();
      made.waits = {append({Lane::kPeer, "motley::receive", "", {{rank(!is_forward)}}, {got}})};
      made.arguments = {{got}};
      made.frees = {got};
    }
    if (!has_target) {
      append(std::move(made));
      return;
    }
    const BufferId given = buffer();
    made.outputs = {given};
    program::Instruction send{Lane::kPeer, "motley::send", "", {{given}, {rank(is_forward)}}};
    send.waits = {append(std::move(made))};
    send.frees = {given};
    append(std::move(send));
  }

  std::vector<Stage> stages_;
  std::int64_t message_, micro_batches_;
};

}  // namespace motley::testing
