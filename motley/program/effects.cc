#include "motley/program/effects.h"

#include <algorithm>
#include <initializer_list>

namespace motley::program {

bool is_persistent(BufferKind kind) {
  return kind != BufferKind::kTemporary && kind != BufferKind::kInput &&
         kind != BufferKind::kCarried;
}

bool may_be_new(BufferKind kind) {
  return kind == BufferKind::kState || kind == BufferKind::kMirror;
}

Access access_of(const Instruction& instruction, std::size_t position) {
  const std::string& op = instruction.op;
  if (op.starts_with("aten::")) {
    const bool in_place = op.ends_with('_') && !op.ends_with("__");
    return in_place && position == 0 ? Access::kWrite : Access::kRead;
  }
  if (op == "motley::all_reduce") return Access::kWrite;
  const auto writes = [&](std::initializer_list<std::size_t> positions) {
    return std::count(positions.begin(), positions.end(), position) > 0 ? Access::kWrite
                                                                        : Access::kRead;
  };
  if (op == "motley::assign" || op == "motley::average" || op == "motley::gradient_factor" ||
      op == "motley::tangent" || op == "motley::put")
    return writes({0});
  if (op == "motley::update") return writes({1, 3, 4});
  if (op == "motley::direction") return writes({3, 4});
  if (op == "motley::apply") return writes({1});
  return Access::kRead;
}

std::vector<BufferId> storages_of(const DeviceProgram& program) {
  std::vector<BufferId> storages(program.buffers.size());
  std::vector<BufferId> chain;
  for (std::size_t i = 0; i < storages.size(); ++i) {
    BufferId at(static_cast<std::int64_t>(i));
    chain.clear();
    while (storages[at.index()].is_none() && !program.buffer(at).view_of.is_none()) {
      chain.push_back(at);
      at = program.buffer(at).view_of;
    }
    if (storages[at.index()].is_none()) storages[at.index()] = at;
    for (const BufferId id : chain) storages[id.index()] = storages[at.index()];
  }
  return storages;
}

}  // namespace motley::program
