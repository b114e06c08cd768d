#pragma once

#include <string>
#include <string_view>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::program {

/// Text form (docs/formats/program.md), line based like the graph's. Errors "NAME:LINE: ...".
/// parse_program(print_program(p)) == p. parse verifies.
std::string print_program(const Program& program);
Result<Program> parse_program(std::string_view text, const std::string& name);

std::string print_argument(const Argument& argument);

/// Every buffer is defined before use and not used after it was freed; every wait names an earlier
/// instruction of the other lane; no two lanes use memory at once that one of them writes;
/// collectives of a group appear on all members in the same order with equal operator, element
/// count and dtype; sends from one rank to another match its receives in order; views have roots.
/// All violations (docs/formats/program.md). Linear.
Result<void> verify_program(const Program& program, const std::string& name);

/// Identity of an instruction's cost: operator, dtypes and shapes of its tensors, other arguments
/// (numbers of kind NumberArgument and floats left out, but not the exponent of a power):
/// "aten::mm(f32[24,784], f32[784,512])". docs/formats/program.md has those of our own operators.
std::string cost_key(const DeviceProgram& program, const Instruction& instruction);

}  // namespace motley::program
