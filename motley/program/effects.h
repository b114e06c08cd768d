#pragma once

#include <vector>

#include "motley/program/program.h"

namespace motley::program {

/// Returns whether buffers of this kind live from step to step.
bool is_persistent(BufferKind kind);

/// Returns whether a model file may lack the buffer: states and their mirrors, new in a training.
bool may_be_new(BufferKind kind);

/// What an instruction does to the memory of one of its arguments.
enum class Access { kRead, kWrite };

/// Calls `visit(BufferId, Access)` for every buffer among the arguments, in order. Only these write
/// in place: motley::all_reduce, update, assign, put and ATen operators whose name ends in `_`.
template <typename Visit>
void for_each_access(const Instruction& instruction, const Visit& visit);

Access access_of(const Instruction& instruction, std::size_t position);

/// Returns the root of each buffer (storage_of); linear. Requires a verified program.
std::vector<BufferId> storages_of(const DeviceProgram& program);

template <typename Visit>
void for_each_access(const Instruction& instruction, const Visit& visit) {
  for (std::size_t i = 0; i < instruction.arguments.size(); ++i) {
    const Argument& argument = instruction.arguments[i];
    const Access access = access_of(instruction, i);
    if (const auto* id = std::get_if<BufferId>(&argument.value)) visit(*id, access);
    if (const auto* list = std::get_if<ArgumentList>(&argument.value))
      for_each_buffer(*list, [&](BufferId id) { visit(id, access); });
  }
}

}  // namespace motley::program
