#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "motley/program/program.h"

namespace motley::run {

/// Tensors by name (Executor::persistent, ExecutorOptions::shared).
using TensorsByName = std::map<std::string, at::Tensor>;

/// What an executor of a move (synth/state/move.h) shares: the tensors of the executor before it,
/// by the names that the move has for them.
TensorsByName old_tensors(const TensorsByName& before);

/// What the executor after a move shares: of each tensor of its program that the move made or left
/// as it was that one, in the program's shape. `moved` are the persistent tensors of the move's
/// executor after its step, `move` its program. Constants that a device did not have in the same
/// form are not among them: they are loaded from the model file.
TensorsByName new_tensors(const program::DeviceProgram& program, const program::DeviceProgram& move,
                          const TensorsByName& moved);

}  // namespace motley::run
