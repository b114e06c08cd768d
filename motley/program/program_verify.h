#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::program {

/// Line numbers of a program's parts in its text form; empty for a program made in memory.
struct SourceLines {
  std::vector<int> groups;  ///< by group
  struct Device {
    int line = 0;
    std::vector<int> buffers, instructions;
  };
  std::vector<Device> devices;
};

/// Runs verify_program (program_text.h) and puts "NAME:LINE: ..." before each violation.
Result<void> verify_program_at(const Program& program, const std::string& name,
                               const SourceLines& lines);

}  // namespace motley::program
