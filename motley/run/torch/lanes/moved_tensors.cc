#include "motley/run/torch/lanes/moved_tensors.h"

#include <c10/core/InferenceMode.h>

#include "motley/program/effects.h"
#include "motley/program/state_names.h"

namespace motley::run {
namespace {

/// Tells whether two buffers are the same rows in the same shape, so the same tensor.
bool is_same_form(const program::Buffer& one, const program::Buffer& other) {
  if (one.shape != other.shape || one.part.has_value() != other.part.has_value()) return false;
  if (!one.part) return true;
  program::Part part = *one.part;
  part.is_copy = other.part->is_copy;
  return part == *other.part;
}

}  // namespace

TensorsByName old_tensors(const TensorsByName& before) {
  TensorsByName tensors;
  for (const auto& [name, tensor] : before)
    tensors.emplace(std::string(program::kOldPrefix) + name, tensor);
  return tensors;
}

TensorsByName new_tensors(const program::DeviceProgram& program, const program::DeviceProgram& move,
                          const TensorsByName& moved) {
  const c10::InferenceMode no_autograd;
  std::map<std::string, const program::Buffer*> about;
  for (const program::Buffer& buffer : move.buffers) about.emplace(buffer.name, &buffer);
  TensorsByName tensors;
  for (const program::Buffer& buffer : program.buffers) {
    if (!program::is_persistent(buffer.kind)) continue;
    const std::string old = std::string(program::kOldPrefix) + buffer.name;
    const bool is_made = moved.contains(buffer.name);
    const auto found = moved.find(is_made ? buffer.name : old);
    if (found == moved.end()) continue;
    const bool is_constant = buffer.kind == program::BufferKind::kConstant;
    if (!is_made && is_constant && !is_same_form(*about.at(old), buffer)) continue;
    tensors.emplace(buffer.name, found->second.view(buffer.shape));
  }
  return tensors;
}

}  // namespace motley::run
