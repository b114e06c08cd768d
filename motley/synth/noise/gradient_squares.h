#pragma once

#include "motley/base/result.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"

namespace motley::synth {

/// The same program, whose report says how large gradients were: on each rank the sum of squares of
/// its own term of the gradient, before the terms are summed, and that of the sum. From both, and
/// the samples of each rank, follows the noise of the gradient (adapt/noise_estimate.h). What adam
/// and adamw update counts as they see it: divided by the root of the second moments, as these are
/// before the step. Of a device alone the terms are those of its micro-batches (piece_squares.h).
///
/// A rank's term is counted just before it is packed, the sum as it is unpacked: nothing lives
/// longer, and nothing is exchanged, as each rank reports its own. It costs reading each gradient
/// twice.
///
/// Of batch norm over the global batch the own gradients are whole on each rank, and what it gives
/// back to a sample depends on all of them: terms of parameters in front of it (in the forward
/// pass) are bound to add up to nothing in some directions, and differ by far more than independent
/// ones. These are left out; the noise is that of the parameters behind the last one.
///
/// `plan` is the program's. Usage error `synth.squares`: no gradient is left (stages, one rank
/// alone with one micro-batch, batch norm at the end), states or parameters are kept in parts, or
/// gradients have a loss scale.
Result<program::Program> with_gradient_squares(program::Program program, const plan::Plan& plan);

/// A program that is timed, not run, with what such steps count, so that it can be predicted: a
/// device alone counts its only micro-batch. Where nothing can be counted it stays as it is.
program::Program with_timed_squares(const program::Program& program);

}  // namespace motley::synth
