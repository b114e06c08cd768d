#include "motley/run/torch/lanes/prepared_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "motley/program/parts.h"
#include "motley/program/square_count.h"
#include "motley/run/torch/operators/operator_call.h"
#include "motley/run/torch/operators/our_operators.h"

namespace motley::run {
namespace {

using program::DeviceProgram;
using program::Instruction;
using program::Strands;

/// Keeps only the last wait for each strand, because a strand runs in order.
std::vector<StrandWait> last_waits(const Instruction& instruction, const Strands& strands) {
  std::vector<StrandWait> waits;
  for (const InstructionId id : instruction.waits) {
    const std::size_t strand = strands.of[id.index()];
    const auto known = std::find_if(waits.begin(), waits.end(),
                                    [&](const StrandWait& each) { return each.strand == strand; });
    if (known == waits.end()) {
      waits.push_back({strand, id.value});
    } else {
      known->id = std::max(known->id, int{id.value});
    }
  }
  return waits;
}

std::vector<int> freed(const Instruction& instruction) {
  std::vector<int> ids;
  for (const BufferId id : instruction.frees) ids.push_back(id.value);
  return ids;
}

/// Returns an error that lists all operators of the program that do not exist.
Result<void> find_operators(const DeviceProgram& program) {
  std::set<std::string> missing;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.lane == Lane::kPeer) continue;  // sends and receives: already verified
    if (instruction.lane == Lane::kTransfer) {
      if (!program::is_collective(instruction.op)) missing.insert(instruction.full_name());
    } else if (instruction.op.starts_with("motley::")) {
      if (!is_our_operator(instruction.op)) missing.insert(instruction.full_name());
    } else if (!has_operator(instruction)) {
      missing.insert(instruction.full_name());
    }
  }
  if (missing.empty()) return {};
  return usage_error("run.missing-operator",
                     fmt::format("{}: {} operator{} that this engine does not have: {}; run with "
                                 "the PyTorch version that exported the model",
                                 program.device, missing.size(), missing.size() == 1 ? "" : "s",
                                 fmt::join(missing, ", ")));
}

Result<PreparedCompute> prepare_compute(const DeviceProgram& program, std::size_t id,
                                        at::Device device) {
  const Instruction& instruction = program.instructions[id];
  PreparedCompute compute;
  compute.id = static_cast<int>(id);
  compute.frees = freed(instruction);
  compute.counts = program::counts_squares(instruction);
  compute.is_carried = instruction.is_carried;
  const bool is_ours = instruction.op.starts_with("motley::");
  auto kernel = is_ours ? make_our_operator(program, instruction, device)
                        : make_operator_call(instruction, device);
  if (!kernel)
    return with_context(program.device + ": " + place(instruction, id), std::move(kernel).error());
  compute.kernel = std::move(*kernel);
  return compute;
}

/// Complex numbers are exchanged as two real ones.
void count_pairs(Splits& splits) {
  for (Counts* counts : {&splits.sends, &splits.receives})
    for (std::int64_t& count : *counts) count *= 2;
  splits.cell *= 2;
}

PreparedExchange prepare_peer(const DeviceProgram& program, std::size_t id,
                              const std::vector<std::string>& devices) {
  const Instruction& instruction = program.instructions[id];
  const bool is_send = instruction.op == program::kSend;
  PreparedExchange exchange;
  exchange.id = static_cast<int>(id);
  exchange.frees = freed(instruction);
  exchange.op = instruction.op;
  exchange.peer = program::peer_of(instruction).value;
  const auto peer = static_cast<std::size_t>(exchange.peer);
  exchange.place =
      fmt::format("{}: {} {} {}", program.device, place(instruction, id), is_send ? "to" : "from",
                  peer < devices.size() ? devices[peer] : fmt::format("rank {}", exchange.peer));
  if (is_send) {
    exchange.buffer = std::get<BufferId>(instruction.arguments[0].value).value;
  } else {
    exchange.result = instruction.outputs[0].value;
    exchange.about = program.buffer(instruction.outputs[0]);
  }
  return exchange;
}

Result<PreparedExchange> prepare_transfer(const DeviceProgram& program, std::size_t id) {
  const Instruction& instruction = program.instructions[id];
  PreparedExchange transfer;
  transfer.id = static_cast<int>(id);
  transfer.frees = freed(instruction);
  transfer.place = program.device + ": " + place(instruction, id);
  transfer.op = instruction.op;
  const auto method = program::find_method(instruction);
  if (!method)
    return usage_error("run.bad-instruction", transfer.place + ": this engine has no such way");
  transfer.call = {instruction.group, *method};
  if (auto parts = program::find_exchange_parts(instruction)) {
    transfer.buffer = parts->value.value;
    transfer.result = parts->result.value;
    transfer.about = program.buffer(parts->result);
    transfer.splits = {std::move(parts->counts), std::move(parts->receives), parts->cell};
    if (is_complex(transfer.about.dtype)) count_pairs(transfer.splits);
    return transfer;
  }
  const auto* buffer = instruction.arguments.size() == 1
                           ? std::get_if<BufferId>(&instruction.arguments[0].value)
                           : nullptr;
  if (buffer == nullptr || transfer.op != program::kAllReduce)
    return usage_error("run.bad-instruction", transfer.place + ": the arguments do not fit");
  transfer.buffer = buffer->value;
  return transfer;
}

/// Returns the temporaries that no instruction frees.
std::vector<int> find_unfreed(const DeviceProgram& program) {
  std::vector<bool> is_freed(program.buffers.size(), false);
  for (const Instruction& instruction : program.instructions)
    for (const BufferId id : instruction.frees) is_freed[id.index()] = true;
  std::vector<int> unfreed;
  for (std::size_t i = 0; i < is_freed.size(); ++i)
    if (program.buffers[i].kind == program::BufferKind::kTemporary && !is_freed[i])
      unfreed.push_back(static_cast<int>(i));
  return unfreed;
}

}  // namespace

Result<PreparedProgram> prepare_program(const DeviceProgram& program, const Strands& strands,
                                        at::Device device,
                                        const std::vector<std::string>& devices) {
  // Before anything is allocated: missing operators are reported in a second, all at once.
  MOTLEY_RETURN_IF_ERROR(find_operators(program));
  PreparedProgram made;
  made.temporaries = find_unfreed(program);
  made.exchanges.resize(strands.all.size());
  std::vector<bool> signals(program.instructions.size(), false);
  for (std::size_t id = 0; id < program.instructions.size(); ++id) {
    const Instruction& instruction = program.instructions[id];
    std::vector<StrandWait> waits = last_waits(instruction, strands);
    if (instruction.lane == Lane::kCompute) {
      MOTLEY_ASSIGN(PreparedCompute compute, prepare_compute(program, id, device));
      compute.waits = std::move(waits);
      made.compute.push_back(std::move(compute));
      continue;
    }
    for (const StrandWait& wait : waits) signals[static_cast<std::size_t>(wait.id)] = true;
    PreparedExchange& exchange = made.exchanges[strands.of[id]].emplace_back();
    if (instruction.lane == Lane::kPeer) {
      exchange = prepare_peer(program, id, devices);
    } else {
      MOTLEY_ASSIGN(exchange, prepare_transfer(program, id));
    }
    exchange.waits = std::move(waits);
    exchange.is_carried = instruction.is_carried;
  }
  // Publishes progress only for instructions that others wait for: a store and a wake-up for each
  // instruction would slow steps of small operators.
  for (PreparedCompute& compute : made.compute)
    compute.signals = signals[static_cast<std::size_t>(compute.id)];
  return made;
}

std::string place(const Instruction& instruction, std::size_t id) {
  const std::string label = instruction.label.empty() ? "" : " (" + instruction.label + ")";
  return fmt::format("^{} {}{}", id, instruction.full_name(), label);
}

}  // namespace motley::run
