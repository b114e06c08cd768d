#pragma once

#include "motley/program/program.h"

namespace motley::program {

/// Label of instructions that count squares of gradients (synth/noise/gradient_squares.h).
inline constexpr const char* kSquaresLabel = "gradient squares";

/// Returns whether the instruction only counts squares. A step without these trains the same.
inline bool counts_squares(const Instruction& instruction) {
  return instruction.label == kSquaresLabel;
}

}  // namespace motley::program
