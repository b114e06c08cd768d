#pragma once

#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::program {

/// Line-based text form (docs/formats/program.md); parse_program(print_program(p)) == p. Parsing
/// verifies. Errors "NAME:LINE: ...".
std::string print_program(const Program& program);
Result<Program> parse_program(std::string_view text, const std::string& name);

std::string print_argument(const Argument& argument);

/// Verifies a program and reports all violations (docs/formats/program.md). Buffers are defined
/// before use and not used after they were freed. Waits name earlier instructions of another
/// strand. No two lanes use memory at the same time that one of them writes. All members of a group
/// have its collectives in the same order with equal operator, element count and dtype. Sends
/// between two ranks match the receives in order. Views have roots. Linear.
Result<void> verify_program(const Program& program, const std::string& name);

/// Returns the key of an instruction's cost: operator, dtypes and shapes of its tensors, other
/// arguments without NumberArguments and floats (but with the exponent of a power):
/// "aten::mm(f32[24,784], f32[784,512])". docs/formats/program.md has the keys of our operators.
std::string cost_key(const DeviceProgram& program, const Instruction& instruction);

}  // namespace motley::program
