#pragma once

#include <string_view>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// Tells whether `op` ("motley::pack") is a compute operator of our own that the engine has.
bool is_our_operator(std::string_view op);

/// Makes the kernel of one of our operators (docs/formats/program.md). Usage error: bad argument.
Result<Kernel> make_our_operator(const program::DeviceProgram& program,
                                 const program::Instruction& instruction, at::Device device);

}  // namespace motley::run
