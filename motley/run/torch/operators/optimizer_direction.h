#pragma once

#include "motley/base/result.h"
#include "motley/run/torch/operators/frame.h"
#include "motley/run/torch/operators/instruction_reader.h"

namespace motley::run {

/// Makes kernels of optimizers that treat a parameter as a whole (docs/formats/program.md), and of
/// operations on all gradients or parameters, with the numbers of torch.optim.Adafactor and Muon,
/// clip_grad_norm_, torch.amp.GradScaler and torch.optim.swa_utils.AveragedModel.
Result<Kernel> make_direction(InstructionReader& reader, at::Device device);
Result<Kernel> make_orthogonalize(InstructionReader& reader, at::Device device);
Result<Kernel> make_apply(InstructionReader& reader, at::Device device);
Result<Kernel> make_square_sums(InstructionReader& reader, at::Device device);
Result<Kernel> make_scaled_square_sums(InstructionReader& reader, at::Device device);
Result<Kernel> make_gradient_factor(InstructionReader& reader, at::Device device);
Result<Kernel> make_average(InstructionReader& reader, at::Device device);

}  // namespace motley::run
