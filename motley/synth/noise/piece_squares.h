#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/program/program.h"

namespace motley::synth {

/// Makes a device alone count squares (gradient_squares.h) of each micro-batch's contribution to a
/// gradient, and of the gradient. `samples` has one entry per micro-batch.
///
/// Terms are counted after the instruction that makes them, in groups of up to a mebibyte, which
/// therefore stay alive longer. If a parameter is used several times, its terms of a micro-batch
/// are added first unless the program already does so.
///
/// Usage error `synth.squares`: no gradient is a sum over the micro-batches.
Result<void> count_pieces(std::vector<std::int64_t> samples, program::DeviceProgram& program);

}  // namespace motley::synth
