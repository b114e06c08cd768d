#include "motley/synth/state/commit.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "motley/program/commit.h"
#include "motley/program/effects.h"
#include "motley/program/parts.h"
#include "motley/program/program_text.h"
#include "motley/program/strands.h"

namespace motley::synth {
namespace {

using program::DeviceProgram;
using program::Instruction;

/// Returns the group of all ranks, added if missing.
GroupId group_of_all(program::Program& program) {
  program::Group all;
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    all.members.push_back(Rank(rank));
  auto found = std::find(program.groups.begin(), program.groups.end(), all);
  if (found == program.groups.end()) found = program.groups.insert(found, all);
  return GroupId(found - program.groups.begin());
}

/// Finds, by instruction, whether it or a later exchange needs it: exchanges, their inputs, and
/// what must finish before these because of a write.
std::vector<bool> find_needed(const DeviceProgram& program, const std::vector<BufferId>& storages) {
  const auto& all = program.instructions;
  std::vector<bool> needed(all.size(), false);
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].lane == Lane::kCompute) continue;
    needed[i] = true;
    for (const InstructionId wait : all[i].waits) needed[wait.index()] = true;
  }
  std::vector<bool> used(program.buffers.size(), false), written(used);  // by needed ones behind
  for (std::size_t i = all.size(); i-- > 0;) {
    const auto visit = [&](const auto& see) {
      program::for_each_access(all[i], [&](BufferId id, program::Access access) {
        see(storages[id.index()].index(), access == program::Access::kWrite);
      });
      for (const BufferId id : all[i].outputs) see(storages[id.index()].index(), true);
    };
    visit([&](std::size_t storage, bool writes) {
      needed[i] = needed[i] || written[storage] || (writes && used[storage]);
    });
    if (!needed[i]) continue;
    visit([&](std::size_t storage, bool writes) {
      used[storage] = true;
      written[storage] = written[storage] || writes;
    });
  }
  return needed;
}

/// Finds, by instruction, whether it comes after the commit: from the first compute instruction
/// that writes persistent state, those that no exchange needs.
std::vector<bool> find_rest(const DeviceProgram& program) {
  const std::vector<BufferId> storages = program::storages_of(program);
  const auto& all = program.instructions;
  const std::vector<bool> needed = find_needed(program, storages);
  std::vector<bool> rest(all.size(), false);
  bool has_begun = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (needed[i]) continue;
    program::for_each_access(all[i], [&](BufferId id, program::Access access) {
      has_begun = has_begun || (access == program::Access::kWrite &&
                                program::is_persistent(program.buffer(storages[id.index()]).kind));
    });
    rest[i] = has_begun;
  }
  return rest;
}

/// Moves frees to the new order: the rest frees what it uses, since it begins after all else.
void move_frees(std::size_t rest, DeviceProgram& program) {
  const std::vector<BufferId> storages = program::storages_of(program);
  std::vector<std::size_t> last(program.buffers.size(), 0);  // last use in the rest, by buffer
  const auto touch = [&](std::size_t at, BufferId id) {
    last[id.index()] = at;
    last[storages[id.index()].index()] = at;
  };
  for (std::size_t i = rest; i < program.instructions.size(); ++i) {
    program::for_each_buffer(program.instructions[i].arguments, [&](BufferId id) { touch(i, id); });
    for (const BufferId id : program.instructions[i].outputs) touch(i, id);
  }
  std::vector<std::pair<std::size_t, BufferId>> moved;
  for (std::size_t i = 0; i < rest; ++i)
    std::erase_if(program.instructions[i].frees, [&](BufferId id) {
      if (last[id.index()] == 0) return false;
      moved.emplace_back(last[id.index()], id);
      return true;
    });
  for (const auto& [at, id] : moved) program.instructions[at].frees.push_back(id);
}

/// Returns the last send and receive of each peer, as positions in `order`.
std::vector<InstructionId> ends_of_messages(const DeviceProgram& program,
                                            const std::vector<std::size_t>& order) {
  const program::Strands strands = program::find_strands(program);
  std::vector<InstructionId> ends(strands.all.size());
  for (std::size_t place = 0; place < order.size(); ++place)
    ends[strands.of[order[place]]] = InstructionId(place);
  ends.erase(ends.begin(), ends.begin() + program::Strands::kTransfer + 1);
  std::erase_if(ends, [](InstructionId id) { return id.is_none(); });
  return ends;
}

/// Passes on waits: instructions moved before the rest may have relied on waits of the rest.
void pass_waits_on(const std::vector<bool>& rest, DeviceProgram& program) {
  std::set<InstructionId> passed;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    Instruction& each = program.instructions[i];
    if (each.lane != Lane::kCompute) continue;
    if (rest[i]) {
      passed.insert(each.waits.begin(), each.waits.end());
    } else if (!passed.empty()) {
      passed.insert(each.waits.begin(), each.waits.end());
      each.waits.assign(passed.begin(), passed.end());
      passed.clear();
    }
  }
}

void commit_rank(GroupId group, DeviceProgram& program) {
  const std::vector<bool> rest = find_rest(program);
  std::vector<std::size_t> order(program.instructions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto middle =
      std::stable_partition(order.begin(), order.end(), [&](std::size_t i) { return !rest[i]; });
  const auto first = static_cast<std::size_t>(middle - order.begin());
  const std::vector<std::size_t> front(order.begin(), middle);
  std::vector<InstructionId> ends = ends_of_messages(program, front);
  // The ballot and its sum come between the two pieces.
  std::vector<InstructionId> places(order.size());
  for (std::size_t place = 0; place < order.size(); ++place)
    places[order[place]] = InstructionId(place < first ? place : place + 2);
  pass_waits_on(rest, program);
  std::vector<Instruction> made;
  for (const std::size_t i : order) {
    made.push_back(std::move(program.instructions[i]));
    for (InstructionId& wait : made.back().waits) wait = places[wait.index()];
  }
  program.buffers.push_back({.kind = program::BufferKind::kTemporary,
                             .dtype = DType::kF32,
                             .shape = {1},
                             .name = "",
                             .view_of = {},
                             .part = {}});
  const BufferId number(program.buffers.size() - 1);
  Instruction ballot;
  ballot.op = program::kBallot;
  ballot.outputs = {number};
  ballot.label = "commit";
  Instruction sum;
  sum.lane = Lane::kTransfer;
  sum.op = program::kAllReduce;
  sum.arguments = {{number}};
  sum.group = group;
  // After the other transfers in their lane, and after all messages.
  ends.push_back(InstructionId(first));
  std::sort(ends.begin(), ends.end());
  sum.waits = std::move(ends);
  sum.label = "commit";
  made.insert(made.begin() + static_cast<std::ptrdiff_t>(first), {ballot, sum});
  const InstructionId decided(static_cast<std::int64_t>(first) + 1);
  if (first + 2 < made.size()) {
    made[first + 2].waits.push_back(decided);
    std::sort(made[first + 2].waits.begin(), made[first + 2].waits.end());
    made.back().frees.push_back(number);
  }
  program.instructions = std::move(made);
  move_frees(first + 2, program);
}

}  // namespace

Result<program::Program> with_commit(program::Program program) {
  if (program.devices.size() < 2) return program;
  const GroupId group = group_of_all(program);
  for (DeviceProgram& device : program.devices)
    if (!device.instructions.empty() && !program::find_commit(device)) commit_rank(group, device);
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, "a program with a commit"));
  return program;
}

}  // namespace motley::synth
