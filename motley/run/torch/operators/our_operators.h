#pragma once

#include <string_view>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// Tells whether `op` ("motley::pack") is a compute operator of our own that the engine has.
bool is_our_operator(std::string_view op);

/// Makes the kernel of an operator of our own (listed in docs/formats/program.md). Usage error: an
/// argument does not fit. The operator must be ours (is_our_operator).
Result<Kernel> make_our_operator(const program::DeviceProgram& program,
                                 const program::Instruction& instruction, at::Device device);

}  // namespace motley::run
