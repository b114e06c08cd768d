#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "motley/program/program.h"

namespace motley::run {

/// Tensors by name (Executor::persistent, ExecutorOptions::shared).
using TensorsByName = std::map<std::string, at::Tensor>;

/// Returns the previous executor's tensors under a move's names (synth/state/move.h).
TensorsByName old_tensors(const TensorsByName& before);

/// Returns what the executor after a move shares: tensors that the move made or left in place, in
/// the shapes of `program`. `moved`: persistent tensors of the move's executor after its step.
/// Constants that the device lacked in that form are left out and loaded from the model file.
TensorsByName new_tensors(const program::DeviceProgram& program, const program::DeviceProgram& move,
                          const TensorsByName& moved);

}  // namespace motley::run
