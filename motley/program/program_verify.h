#pragma once

#include <string>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::program {

/// Lines of a text form at which the parts of a program stand; empty for a program made in memory.
struct SourceLines {
  std::vector<int> groups;  ///< by group
  struct Device {
    int line = 0;
    std::vector<int> buffers, instructions;
  };
  std::vector<Device> devices;
};

/// verify_program (program_text.h) with the line of each violation: "NAME:LINE: ...".
Result<void> verify_program_at(const Program& program, const std::string& name,
                               const SourceLines& lines);

}  // namespace motley::program
