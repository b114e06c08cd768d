#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "motley/cost/measured/profile_store.h"
#include "motley/program/program.h"
#include "motley/program/program_text.h"

namespace motley::cost {

inline ProfileStore memory_store() { return std::move(*ProfileStore::open(":memory:")); }

/// Makes `products` products [samples, k] x [k, 2], k = 1, 2, ..., and an all-reduce (transfers).
inline program::DeviceProgram product_program(std::int64_t samples, std::size_t products) {
  using program::Buffer;
  using program::BufferKind;
  program::DeviceProgram result;
  result.device = "a:0";
  result.samples = samples;
  const auto add = [&](BufferKind kind, std::vector<std::int64_t> shape) {
    result.buffers.push_back({kind, DType::kF32, std::move(shape), "", {}});
    return BufferId(static_cast<std::int64_t>(result.buffers.size()) - 1);
  };
  for (std::size_t i = 0; i < products; ++i) {
    const auto k = static_cast<std::int64_t>(i) + 1;
    const BufferId x = add(BufferKind::kInput, {samples, k});
    const BufferId w = add(BufferKind::kParameter, {k, 2});
    const BufferId y = add(BufferKind::kTemporary, {samples, 2});
    program::Instruction instruction;
    instruction.op = "aten::mm";
    instruction.arguments = {{x}, {w}};
    instruction.outputs = {y};
    result.instructions.push_back(instruction);
  }
  program::Instruction reduce;
  reduce.lane = Lane::kTransfer;
  reduce.op = "motley::all_reduce";
  reduce.arguments = {{BufferId(1)}};
  reduce.group = GroupId(0);
  result.instructions.push_back(reduce);
  return result;
}

/// Returns measurements of product_program's products at one batch.
inline std::vector<OpEntry> product_entries(const DeviceKey& device, std::int64_t samples,
                                            const std::vector<double>& seconds) {
  const program::DeviceProgram program = product_program(samples, seconds.size());
  std::vector<OpEntry> entries;
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    entries.push_back({device,
                       program::cost_key(program, program.instructions[i]),
                       Seconds(seconds[i]),
                       0,
                       1,
                       {},
                       {}});
  }
  return entries;
}

}  // namespace motley::cost
