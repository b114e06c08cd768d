#include "motley/run/torch/operators/optimizer_update.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

namespace motley::run {

namespace {

struct Constants {
  double lr, momentum;
  bool nesterov;
  double weight_decay, beta1, beta2, eps;
};

/// Parameters of one dtype with what belongs to them, by buffer id.
struct Batch {
  std::vector<int> parameters, gradients, state1, state2;
};

std::vector<at::Tensor> pick(const Frame& frame, const std::vector<int>& ids) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(ids.size());
  for (const int id : ids) tensors.push_back(frame.values[id]);
  return tensors;
}

std::vector<at::Tensor> pick_gradients(const Frame& frame, const Batch& batch) {
  std::vector<at::Tensor> gradients = pick(frame, batch.gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = gradients[i].to(frame.values[batch.parameters[i]].scalar_type()).contiguous();
  return gradients;
}

using Fused = void (*)(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                       at::TensorList, at::TensorList, double, double, double, double, double, bool,
                       bool, const std::optional<at::Tensor>&, const std::optional<at::Tensor>&);

Kernel make_sgd(std::vector<Batch> batches, const Constants& c) {
  return [batches = std::move(batches), c](Frame& frame) {
    for (const Batch& batch : batches)
      at::_fused_sgd_(pick(frame, batch.parameters), pick_gradients(frame, batch),
                      pick(frame, batch.state1), c.weight_decay, c.momentum, c.lr,
                      /*dampening=*/0.0, c.nesterov, /*maximize=*/false, /*is_first_step=*/false);
  };
}

Kernel make_adam(std::vector<Batch> batches, const Constants& c, Fused fused, at::Device device) {
  const at::Tensor count = at::zeros({}, at::TensorOptions(device).dtype(at::kFloat));
  return [batches = std::move(batches), c, fused, count](Frame& frame) {
    count.fill_(frame.step + 1);
    for (const Batch& batch : batches) {
      const std::vector<at::Tensor> steps(batch.parameters.size(), count);
      fused(pick(frame, batch.parameters), pick_gradients(frame, batch), pick(frame, batch.state1),
            pick(frame, batch.state2), {}, steps, c.lr, c.beta1, c.beta2, c.weight_decay, c.eps,
            /*amsgrad=*/false, /*maximize=*/false, std::nullopt, std::nullopt);
    }
  };
}

}  // namespace

Result<Kernel> make_update(InstructionReader& reader, at::Device device) {
  const std::string kind = reader.text(0);
  const std::vector<int> parameters = reader.buffers(1), gradients = reader.buffers(2);
  const std::vector<int> state1 = reader.buffers(3), state2 = reader.buffers(4);
  const Constants c{reader.number(5), reader.number(6),  reader.boolean(7), reader.number(8),
                    reader.number(9), reader.number(10), reader.number(11)};
  MOTLEY_RETURN_IF_ERROR(reader.status());
  const bool is_sgd = kind == "sgd";
  if (!is_sgd && kind != "adam" && kind != "adamw")
    return usage_error("run.bad-instruction",
                       fmt::format("found optimizer '{}', wanted sgd, adam or adamw", kind));
  const std::size_t n = parameters.size();
  const std::size_t n1 = is_sgd && c.momentum == 0.0 ? 0 : n, n2 = is_sgd ? 0 : n;
  if (gradients.size() != n || state1.size() != n1 || state2.size() != n2)
    return usage_error(
        "run.bad-instruction",
        fmt::format(
            "found {} gradients, {} and {} states for {} parameters of {}, wanted {}, {}, {}",
            gradients.size(), state1.size(), state2.size(), n, kind, n, n1, n2));
  std::map<DType, Batch> by_dtype;
  for (std::size_t i = 0; i < n; ++i) {
    Batch& batch = by_dtype[reader.about(parameters[i]).dtype];
    batch.parameters.push_back(parameters[i]);
    batch.gradients.push_back(gradients[i]);
    if (n1 > 0) batch.state1.push_back(state1[i]);
    if (n2 > 0) batch.state2.push_back(state2[i]);
  }
  std::vector<Batch> batches;
  for (auto& [dtype, batch] : by_dtype) batches.push_back(std::move(batch));
  if (is_sgd) return make_sgd(std::move(batches), c);
  // The overload with a number for the learning rate.
  const Fused fused = kind == "adam" ? static_cast<Fused>(&at::_fused_adam_)
                                     : static_cast<Fused>(&at::_fused_adamw_);
  return make_adam(std::move(batches), c, fused, device);
}

}  // namespace motley::run
