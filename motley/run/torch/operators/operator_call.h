#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// Tells whether this PyTorch has the instruction's ATen operator.
bool has_operator(const program::Instruction& instruction);

/// Makes a kernel that calls an ATen operator through the dispatcher. Resolves once: the schema,
/// constants as values of the schema's types, and positions of tensors. Conversions:
///   - a number for a Tensor argument becomes a wrapped number, which does not promote dtypes;
///   - an integer for a float argument becomes a float, one for int[N] is repeated N times;
///   - dtype, layout, memory format and device words become PyTorch's enumerators; `device(local)`
///     is `device`;
///   - view runs as reshape, since layouts may differ from those at the time of capture.
/// Usage errors: too many or unfitting arguments. The operator must exist (has_operator).
Result<Kernel> make_operator_call(const program::Instruction& instruction, at::Device device);

}  // namespace motley::run
