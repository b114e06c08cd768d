#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

/// Has a device alone count squares (gradient_squares.h) of what each of its micro-batches, with so
/// many samples, adds to a gradient, and of the gradient.
///
/// A term is counted behind the instruction that makes it, with those that follow until they have
/// a mebibyte: as much is kept longer for it. Of a parameter that is used several times the terms
/// of a micro-batch are added first, where the program does not do so itself.
///
/// Usage error `synth.squares`: no gradient is a sum over them.
Result<void> count_pieces(std::vector<std::int64_t> samples, program::DeviceProgram& program);

}  // namespace motley::synth
