#pragma once

#include <optional>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/torch/operators/frame.h"
#include "motley/run/torch/operators/instruction_reader.h"

namespace motley::run {

/// The arguments of motley::update and motley::direction: parameters of one optimizer, by buffer
/// id, with its constants.
struct UpdateArguments {
  explicit UpdateArguments(InstructionReader& reader);

  std::string kind;
  std::vector<int> parameters, gradients, state1, state2;
  int factor = -1;   ///< f64 [1]: gradients are multiplied by it; not finite: nothing changes
  int scaling = -1;  ///< f32 [3]: the loss's scale, good steps since it grew, good steps in all
  std::optional<double> clip_value;
  double lr, weight_decay;
  std::vector<double> constants;

  double constant(std::size_t i) const { return constants.at(i); }
  bool touches_gradients() const { return factor >= 0 || clip_value.has_value(); }
};

/// What a step multiplies gradients by: 1 if there is no factor.
double read_factor(const Frame& frame, int factor);
/// Updates made so far, this one included.
double count_updates(const Frame& frame, int scaling);

std::vector<at::Tensor> pick(const Frame& frame, const std::vector<int>& ids);

/// Gradient i in its parameter's dtype and layout, multiplied by `factor` and clipped: a new tensor
/// where that changes anything.
at::Tensor prepare_gradient(const Frame& frame, const UpdateArguments& arguments, std::size_t i,
                            double factor);

/// Kernel of motley::update: optimizers whose step for an element depends on that element alone
/// ("sgd", "adam", "adamw", "adagrad" by PyTorch's fused kernels, "rmsprop", "lion"): the numbers
/// of torch.optim with the same constants. Momentum starts at zero, which gives the first step
/// torch.optim gives (dampening is 0). The rate is the instruction's times Frame::lr_factor.
Result<Kernel> make_update(InstructionReader& reader, at::Device device);

}  // namespace motley::run
