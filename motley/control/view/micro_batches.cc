#include "motley/control/view/micro_batches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>

#include "motley/report/page/layer_names.h"

namespace motley::control {
namespace {

constexpr std::int64_t kNone = -1;

/// Returns a key of instructions that occur equally often in each micro-batch; "": others.
std::string kind_of(const program::DeviceProgram& device, const program::Instruction& instruction) {
  if (instruction.op == program::kReceive && !instruction.outputs.empty())
    return fmt::format("{} {} {}", program::peer_of(instruction).value, instruction.label,
                       fmt::join(device.buffer(instruction.outputs[0]).shape, ","));
  const bool cuts = instruction.op == "aten::slice" || instruction.op == "aten::select" ||
                    instruction.op == "aten::narrow";
  if (!cuts || instruction.arguments.empty()) return "";
  const auto* from = std::get_if<BufferId>(&instruction.arguments[0].value);
  if (from == nullptr ||
      device.buffer(program::storage_of(device, *from)).kind != program::BufferKind::kInput)
    return "";
  return fmt::format("%{}", from->value);
}

class Passes {
 public:
  Passes(const program::DeviceProgram& device, std::int64_t micro_batches)
      : device_(device), count_(micro_batches), of_(device.buffers.size(), kNone) {
    for (const program::Instruction& each : device.instructions)
      if (std::string kind = kind_of(device, each); !kind.empty()) ++kinds_[std::move(kind)].all;
  }

  /// Instructions come in the program's order.
  std::int64_t next(const program::Instruction& instruction) {
    std::int64_t own = begun_by(instruction), made = own;
    if (own == kNone) {
      const Found found = read_by(instruction);
      own = found.latest, made = found.is_mixed ? kNone : own;
    }
    for (const BufferId output : instruction.outputs) of_[output.index()] = made;
    return own;
  }

 private:
  struct Kind {
    std::int64_t all = 0, seen = 0;
  };
  struct Found {
    std::int64_t latest = kNone;
    bool is_mixed = false;
  };

  std::int64_t begun_by(const program::Instruction& instruction) {
    const auto kind = kinds_.find(kind_of(device_, instruction));
    if (kind == kinds_.end() || kind->second.all % count_ != 0) return kNone;
    return kind->second.seen++ * count_ / kind->second.all;
  }

  Found read_by(const program::Instruction& instruction) const {
    Found tensors, numbers;
    program::for_each_buffer(instruction.arguments, [&](BufferId id) {
      const std::int64_t of = of_[id.index()];
      if (of == kNone) return;
      Found& found = device_.buffer(id).elements() > 1 ? tensors : numbers;
      found.is_mixed = found.is_mixed || (found.latest != kNone && found.latest != of);
      found.latest = std::max(found.latest, of);
    });
    return tensors.latest != kNone ? tensors : numbers;
  }

  const program::DeviceProgram& device_;
  std::int64_t count_;
  std::vector<std::int64_t> of_;
  std::map<std::string, Kind> kinds_;
};

std::int64_t micro_batches_of(const program::Program& program,
                              const std::vector<report::StageRow>& stages,
                              const std::string& device) {
  for (const report::StageRow& each : stages)
    if (std::find(each.devices.begin(), each.devices.end(), device) != each.devices.end())
      return each.micro_batches;
  return program.micro_batches;
}

std::vector<report::Pass> passes_of(const program::DeviceProgram& device,
                                    std::int64_t micro_batches, OpId first_backward) {
  Passes passes(device, micro_batches);
  std::vector<report::Pass> found;
  found.reserve(device.instructions.size());
  for (const program::Instruction& each : device.instructions) {
    report::Pass pass{passes.next(each)};
    if (report::layer_of(each.op) == "update") pass.micro_batch = kNone;
    pass.is_backward = !first_backward.is_none() && !each.origin.is_none() &&
                       each.origin.value >= first_backward.value;
    found.push_back(pass);
  }
  return found;
}

}  // namespace

OpId find_first_backward(const program::Program& program) {
  OpId first;
  for (const program::DeviceProgram& device : program.devices)
    for (const program::Instruction& each : device.instructions)
      if (!each.origin.is_none() && each.op.find("_backward") != std::string::npos &&
          (first.is_none() || each.origin.value < first.value))
        first = each.origin;
  return first;
}

std::vector<std::vector<report::Pass>> find_passes(const program::Program& program,
                                                   const std::vector<report::StageRow>& stages) {
  std::vector<std::vector<report::Pass>> passes;
  const OpId first_backward = find_first_backward(program);
  for (const program::DeviceProgram& device : program.devices) {
    const std::int64_t count = micro_batches_of(program, stages, device.device);
    passes.push_back(count < 2 ? std::vector<report::Pass>()
                               : passes_of(device, count, first_backward));
  }
  return passes;
}

report::Peers find_peers(const program::Program& program) {
  report::Peers peers;
  for (const program::DeviceProgram& device : program.devices) {
    auto& of_device = peers.emplace_back();
    for (const program::Instruction& each : device.instructions) {
      const Rank peer = program::peer_of(each);
      of_device.push_back(peer.is_none() ? -1 : static_cast<int>(peer.index()));
    }
  }
  return peers;
}

}  // namespace motley::control
