#pragma once

#include "motley/base/result.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"

namespace motley::synth {

/// Returns the same program with a report of gradient norms: on each rank, the sum of squares of
/// its own gradient term before summation, and of the summed gradient. These and the samples of
/// each rank give the gradient noise (adapt/noise_estimate.h). Gradients for adam and adamw are
/// counted as these optimizers scale them: divided by the root of the second moments before the
/// step. On a device alone the terms are those of its micro-batches (piece_squares.h).
///
/// A rank's term is counted just before it is packed, the sum when it is unpacked. So no buffer
/// lives longer, and nothing more is exchanged, since each rank reports its own sums. The cost is
/// reading each gradient twice.
///
/// With global batch norm, what its backward pass returns to a sample depends on all samples. So
/// the terms of parameters before it (in the forward pass) must sum to zero in some directions, and
/// differ far more than independent terms. These parameters are left out; the noise is that of the
/// parameters after the last batch norm.
///
/// `plan` is the program's plan. Usage error `synth.squares`: no gradient remains (stages, one rank
/// alone with one micro-batch, batch norm at the end), states or parameters are sharded, or
/// gradients have a loss scale.
Result<program::Program> with_gradient_squares(program::Program program, const plan::Plan& plan);

/// Returns a program for timing, not for running, with the counting instructions of such steps, so
/// that they can be predicted. A device alone counts its only micro-batch. The program is unchanged
/// if nothing can be counted.
program::Program with_timed_squares(const program::Program& program);

}  // namespace motley::synth
