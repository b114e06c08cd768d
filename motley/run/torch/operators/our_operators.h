#pragma once

#include <string_view>

#include "motley/base/result.h"
#include "motley/program/program.h"
#include "motley/run/torch/operators/frame.h"

namespace motley::run {

/// Whether `op` ("motley::pack") is one of the compute operators of our own that the engine has.
bool is_our_operator(std::string_view op);

/// Kernel of an operator of our own (docs/formats/program.md lists them). A usage error if an
/// argument does not fit. The operator must be ours (is_our_operator).
Result<Kernel> make_our_operator(const program::DeviceProgram& program,
                                 const program::Instruction& instruction, at::Device device);

}  // namespace motley::run
