#include "motley/run/launch/diagnosis.h"

#include <fmt/format.h>

#include "motley/base/file.h"
#include "motley/base/text.h"
#include "motley/program/program_text.h"
#include "motley/run/launch/process_life.h"

namespace motley::run {
std::string rank_name(const Job& job, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  return index < job.devices.size() ? fmt::format("rank {} ({})", rank, job.devices[index].name)
                                    : fmt::format("rank {}", rank);
}

Diagnosis::Diagnosis(const Job& job) : job_(job) {}

const StatusFile* Diagnosis::status(int rank) {
  if (status_.size() < job_.devices.size()) status_.resize(job_.devices.size());
  auto& status = status_[static_cast<std::size_t>(rank)];
  if (!status) {
    auto opened = StatusFile::open(job_.run_dir, rank);
    if (opened) status = std::make_unique<StatusFile>(std::move(*opened));
  }
  return status.get();
}

std::string Diagnosis::instruction(int rank, InstructionId id) {
  if (!program_read_) {
    // Read once, only after a failure, whether it can be read or not.
    program_read_ = true;
    const auto text = read_file(job_.program_path);
    if (text) {
      auto program = program::parse_program(*text, job_.program_path);
      if (program) program_ = std::move(*program);
    }
  }
  const program::DeviceProgram* own = own_program(rank);
  if (own == nullptr) return fmt::format("^{}", id.value);
  const auto& instructions = own->instructions;
  if (id.index() >= instructions.size()) return fmt::format("^{}", id.value);
  const program::Instruction& found = instructions[id.index()];
  return fmt::format("^{} {}{}", id.value, found.full_name(),
                     found.label.empty() ? "" : " " + quote(found.label));
}

/// Looks the rank up by name: a job whose plan changes has more ranks, in another order.
const program::DeviceProgram* Diagnosis::own_program(int rank) const {
  const std::string& name = job_.devices[static_cast<std::size_t>(rank)].name;
  for (const program::DeviceProgram& device : program_.devices)
    if (device.device == name) return &device;
  return nullptr;
}

int Diagnosis::find_peer(int rank, InstructionId id) const {
  const program::DeviceProgram* own = own_program(rank);
  if (own == nullptr || id.index() >= own->instructions.size()) return -1;
  const Rank peer = program::peer_of(own->instructions[id.index()]);
  if (peer.is_none() || peer.index() >= program_.devices.size()) return -1;
  const std::string& name = program_.devices[peer.index()].device;
  for (std::size_t i = 0; i < job_.devices.size(); ++i)
    if (job_.devices[i].name == name) return static_cast<int>(i);
  return -1;
}

std::string Diagnosis::where(int rank) {
  const StatusFile* file = status(rank);
  if (file == nullptr) return "not started";
  const StatusRecord& record = file->record();
  const InstructionId compute(record.compute_instruction.load());
  const InstructionId transfer(record.transfer_instruction.load());
  const InstructionId peer(record.peer_instruction.load());
  std::string text = fmt::format("step {}", record.step.load());
  if (!compute.is_none()) text += ", " + instruction(rank, compute);
  if (!transfer.is_none()) text += ", " + instruction(rank, transfer);
  if (!peer.is_none()) {
    text += ", " + instruction(rank, peer);
    if (const int other = find_peer(rank, peer); other >= 0)
      text += " with " + rank_name(job_, other);
  }
  if (compute.is_none() && transfer.is_none() && peer.is_none()) text += ", between instructions";
  return text;
}

std::string Diagnosis::all() {
  std::vector<std::string> parts;
  for (std::size_t rank = 0; rank < job_.devices.size(); ++rank)
    parts.push_back(rank_name(job_, static_cast<int>(rank)) + ": " + where(static_cast<int>(rank)));
  return join(parts, "; ");
}

std::vector<int> Diagnosis::find_lost() {
  std::vector<int> lost;
  for (std::size_t rank = 0; rank < job_.devices.size(); ++rank) {
    const StatusFile* file = status(static_cast<int>(rank));
    if (file != nullptr && !is_alive(file->record().pid)) lost.push_back(static_cast<int>(rank));
  }
  return lost;
}

std::optional<std::int64_t> Diagnosis::step(int rank) {
  const StatusFile* file = status(rank);
  return file == nullptr ? std::nullopt : std::optional(file->record().step.load());
}

bool Diagnosis::is_running(int rank) {
  const StatusFile* file = status(rank);
  return file != nullptr && is_writer_alive(file->record().pid, status_path(job_.run_dir, rank));
}

std::uint64_t Diagnosis::progress() {
  std::uint64_t sum = 0;
  for (std::size_t rank = 0; rank < job_.devices.size(); ++rank) {
    const StatusFile* file = status(static_cast<int>(rank));
    if (file == nullptr) continue;
    const StatusRecord& record = file->record();
    for (const std::int64_t part :
         {record.pid.load(), record.step.load(), record.compute_instruction.load(),
          record.transfer_instruction.load(), record.peer_instruction.load(),
          record.updated_ns.load()})
      // A hash: any change of any part almost certainly changes it.
      sum = (sum ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15u + 1;
  }
  return sum;
}

}  // namespace motley::run
