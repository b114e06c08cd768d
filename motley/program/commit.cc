#include "motley/program/commit.h"

#include <algorithm>

#include "motley/program/effects.h"
#include "motley/program/parts.h"

namespace motley::program {
namespace {

std::optional<std::size_t> find_sum_of_ballot(const DeviceProgram& program) {
  std::optional<BufferId> ballot;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == kBallot && !instruction.outputs.empty()) ballot = instruction.outputs[0];
    if (!ballot || instruction.op != kAllReduce || instruction.arguments.empty()) continue;
    const auto* summed = std::get_if<BufferId>(&instruction.arguments[0].value);
    if (summed != nullptr && *summed == *ballot) return i;
  }
  return std::nullopt;
}

}  // namespace

std::optional<Commit> find_commit(const DeviceProgram& program) {
  const auto at = find_sum_of_ballot(program);
  if (!at) return std::nullopt;
  Commit commit{*at, {}};
  const std::vector<BufferId> storages = storages_of(program);
  const auto note = [&](BufferId id, Access access) {
    const BufferId root = storages[id.index()];
    if (access == Access::kWrite && is_persistent(program.buffer(root).kind) &&
        std::find(commit.written.begin(), commit.written.end(), root) == commit.written.end())
      commit.written.push_back(root);
  };
  for (std::size_t i = 0; i < *at; ++i) for_each_access(program.instructions[i], note);
  return commit;
}

}  // namespace motley::program
