#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace motley::run {

/// Batch normalisation with statistics over several devices. x is [N, C, ...]. Sums are float64, so
/// that adding them loses nothing, made by PyTorch's one-device kernels. All follow
/// native_batch_norm and its backward, so a single device gets the same numbers.

/// Returns f64[2, C]: n * mean and n * (var + mean^2) of the local samples, n elements per channel.
/// Made from means, not plain sums: one device's statistics come back without cancellation.
at::Tensor batch_norm_sums(const at::Tensor& x);

struct BatchNormResult {
  at::Tensor out, mean, rstd;
  at::Tensor running_mean, running_var;  ///< new values; undefined without old ones
};
struct BatchNormInputs {
  at::Tensor x, weight, bias, running_mean, running_var;  ///< all but x may be undefined
  at::Tensor sums;                                        ///< added over the devices
  std::int64_t count = 0;                                 ///< elements per channel, all devices
  double momentum = 0.1, eps = 1e-5;
};
BatchNormResult batch_norm(const BatchNormInputs& inputs);

/// Returns f64[2, C]: sum(grad) and sum(grad * (x - mean) * rstd) of the local samples.
at::Tensor batch_norm_backward_sums(const at::Tensor& grad, const at::Tensor& x,
                                    const at::Tensor& mean, const at::Tensor& rstd);

struct BatchNormBackwardInputs {
  at::Tensor grad, x, weight, mean, rstd;  ///< weight may be undefined
  at::Tensor sums;                         ///< of batch_norm_backward_sums, added over the devices
  std::int64_t count = 0;
};
/// Returns the gradients of x, weight and bias (the latter from sums, in the parameters' dtype).
std::array<at::Tensor, 3> batch_norm_backward(const BatchNormBackwardInputs& inputs);

}  // namespace motley::run
