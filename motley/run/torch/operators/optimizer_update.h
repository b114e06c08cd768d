#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/torch/operators/element_update.h"
#include "motley/run/torch/operators/frame.h"
#include "motley/run/torch/operators/instruction_reader.h"

namespace motley::run {

/// The arguments of motley::update and motley::direction: parameters by buffer id, and constants.
struct UpdateArguments {
  explicit UpdateArguments(InstructionReader& reader);

  std::string kind;
  std::vector<int> parameters, gradients, state1, state2;
  int factor = -1;   ///< f64 [1]: multiplies gradients; not finite: nothing changes
  int scaling = -1;  ///< f32 [3]: loss scale, good steps since it grew, good steps in all
  std::optional<double> clip_value;
  double lr, weight_decay;
  std::vector<double> constants;
  bool is_portable;  ///< the same bits on all devices, not only on equal ones

  double constant(std::size_t i) const { return constants.at(i); }
  /// Returns the step for elements in the frame's step.
  ElementStep step(const Frame& frame, ElementKind kind) const;
  bool touches_gradients() const { return factor >= 0 || clip_value.has_value(); }
};

/// The constants of a kind of optimizer, and the states that it keeps per parameter.
struct OptimizerCounts {
  std::string_view kind;
  std::size_t constants;
  std::size_t (*states)(const UpdateArguments&);
};
/// Checks counts. Usage errors: wrong counts of constants, gradients or states.
Result<void> check_counts(const UpdateArguments& arguments, const OptimizerCounts& wanted);
inline std::size_t one_state(const UpdateArguments&) { return 1; }
inline std::size_t two_states(const UpdateArguments&) { return 2; }

/// Returns the factor that multiplies gradients in this step; 1 if there is none.
double read_factor(const Frame& frame, int factor);
/// Returns the updates made so far, this one included.
double count_updates(const Frame& frame, int scaling);

std::vector<at::Tensor> pick(const Frame& frame, const std::vector<int>& ids);

/// Returns gradient i in its parameter's dtype and layout, multiplied by `factor` and clipped.
at::Tensor prepare_gradient(const Frame& frame, const UpdateArguments& arguments, std::size_t i,
                            double factor);

/// Makes the kernel of motley::update, for optimizers that treat each element separately, through
/// element_update.h: the numbers of torch.optim with the same constants. GPUs run "sgd", "adam",
/// "adamw" and "adagrad" by PyTorch's fused kernels unless the update is portable. Momentum starts
/// at zero, as torch.optim's first step (dampening is 0). The rate is the instruction's times
/// Frame::updating's.
Result<Kernel> make_update(InstructionReader& reader, at::Device device);

}  // namespace motley::run
