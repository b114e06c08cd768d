#pragma once

#include "motley/base/result.h"
#include "motley/run/torch/operators/frame.h"
#include "motley/run/torch/operators/instruction_reader.h"

namespace motley::run {

/// Kernel of motley::update by PyTorch's fused optimizers ("sgd", "adam", "adamw"): the numbers of
/// torch.optim with the same constants. Momentum starts at zero, which gives the first step
/// torch.optim gives (dampening is 0); Adam's bias correction counts steps from Frame::step.
/// Gradients are brought to their parameter's dtype and layout first.
Result<Kernel> make_update(InstructionReader& reader, at::Device device);

}  // namespace motley::run
