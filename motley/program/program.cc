#include "motley/program/program.h"

#include <algorithm>
#include <cmath>

#include "motley/program/state_names.h"

namespace motley::program {
namespace {

bool equal(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

}  // namespace

std::int64_t Buffer::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::string Buffer::tensor() const {
  if (kind != BufferKind::kMirror || !name.starts_with(kMirrorPrefix)) return name;
  return name.substr(name.find('/', kMirrorPrefix.size()) + 1);
}

Bytes Buffer::bytes() const { return Bytes(elements() * dtype_size(dtype)); }

bool NumberArgument::operator==(const NumberArgument& other) const {
  const auto* a = std::get_if<double>(&value);
  const auto* b = std::get_if<double>(&other.value);
  return a && b ? equal(*a, *b) : value == other.value;
}

bool Argument::operator==(const Argument& other) const {
  const auto* a = std::get_if<double>(&value);
  const auto* b = std::get_if<double>(&other.value);
  return a && b ? equal(*a, *b) : value == other.value;
}

std::vector<std::int64_t> Program::samples_of(const DeviceProgram& device) const {
  std::vector<std::int64_t> positions;
  for (std::int64_t m = 0; m < micro_batches; ++m)
    for (std::int64_t i = 0; i < device.samples / micro_batches; ++i)
      positions.push_back(m * (global_batch / micro_batches) + device.first_sample + i);
  return positions;
}

std::string Instruction::full_name() const { return overload.empty() ? op : op + "." + overload; }

Program own_program(const Program& program, Rank rank) {
  Program own{.model_hash = program.model_hash,
              .plan_hash = program.plan_hash,
              .global_batch = program.global_batch,
              .micro_batches = program.micro_batches,
              .groups = program.groups,
              .devices = {}};
  for (std::size_t i = 0; i < program.devices.size(); ++i) {
    const DeviceProgram& device = program.devices[i];
    if (i == rank.index()) {
      own.devices.push_back(device);
      continue;
    }
    own.devices.push_back({.device = device.device,
                           .samples = device.samples,
                           .first_sample = device.first_sample,
                           .buffers = {},
                           .instructions = {},
                           .is_elsewhere = true});
  }
  return own;
}

Rank peer_of(const Instruction& instruction) {
  const bool is_send = instruction.op == kSend;
  if (!is_send && instruction.op != kReceive) return {};
  const std::size_t position = is_send ? 1 : 0;
  if (instruction.arguments.size() != position + 1) return {};
  const auto* rank = std::get_if<std::int64_t>(&instruction.arguments[position].value);
  return rank && *rank >= 0 && *rank <= INT32_MAX ? Rank(*rank) : Rank();
}

bool is_exchange(const Instruction& instruction) {
  return !instruction.group.is_none() || instruction.op == kSend || instruction.op == kReceive;
}

bool is_in_group(const DeviceProgram& program) {
  return std::any_of(program.instructions.begin(), program.instructions.end(), is_exchange);
}

Bytes exchanged_bytes(const DeviceProgram& program, const Instruction& instruction) {
  BufferId first;
  for_each_buffer(instruction.arguments, [&](BufferId id) {
    if (first.is_none()) first = id;
  });
  if (first.is_none() && instruction.op == kReceive && !instruction.outputs.empty())
    first = instruction.outputs[0];
  return first.is_none() ? Bytes() : program.buffer(first).bytes();
}

BufferId storage_of(const DeviceProgram& program, BufferId buffer) {
  while (!program.buffer(buffer).view_of.is_none()) buffer = program.buffer(buffer).view_of;
  return buffer;
}

}  // namespace motley::program
