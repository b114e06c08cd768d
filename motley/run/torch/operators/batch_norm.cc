#include "motley/run/torch/operators/batch_norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/batch_norm_backward_reduce.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <optional>
#include <vector>

namespace motley::run {

namespace {

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// Statistics have float32 precision even for lower-precision values.
at::Tensor at_least_float(const at::Tensor& x) {
  const bool is_low = x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16;
  return is_low ? x.to(at::kFloat) : x;
}

at::Tensor along_channels(const at::Tensor& vector, const at::Tensor& x) {
  std::vector<std::int64_t> shape(x.dim(), 1);
  shape[1] = x.size(1);
  return vector.view(shape);
}

at::Tensor no_sums(const at::Tensor& x) {
  return at::zeros({2, x.size(1)}, x.options().dtype(at::kDouble));
}

/// Computes out = a[c] * grad + b[c] * (x - mean[c]) + d[c], contiguous float32.
struct ChannelTerms {
  const float *a, *b, *mean, *d;
};
void combine_channels(const at::Tensor& grad, const at::Tensor& x, const ChannelTerms& terms,
                      at::Tensor& out) {
  const std::int64_t channels = x.size(1), rows = x.size(0) * channels;
  const std::int64_t inner = rows == 0 ? 0 : x.numel() / rows;
  const float* g = grad.const_data_ptr<float>();
  const float* source = x.const_data_ptr<float>();
  float* target = out.mutable_data_ptr<float>();
  const std::int64_t grain = 1 + 16384 / (inner + 1);
  at::parallel_for(0, rows, grain, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t row = from; row < to; ++row) {
      const std::int64_t c = row % channels;
      const float a = terms.a[c], b = terms.b[c], mean = terms.mean[c], d = terms.d[c];
      for (std::int64_t i = row * inner; i < (row + 1) * inner; ++i)
        target[i] = a * g[i] + (b * (source[i] - mean) + d);
    }
  });
}

}  // namespace

at::Tensor batch_norm_sums(const at::Tensor& x) {
  if (x.numel() == 0) return no_sums(x);
  const auto [mean, var] =
      at::batch_norm_update_stats(at_least_float(x), std::nullopt, std::nullopt, 0.0);
  const double n = static_cast<double>(x.numel()) / static_cast<double>(x.size(1));
  const at::Tensor mean64 = mean.to(at::kDouble), var64 = var.to(at::kDouble);
  // From mean and variance, in f64: x^2 summed in f32 would lose a variance far below the mean.
  return at::stack({mean64, at::addcmul(var64, mean64, mean64)}).mul_(n);
}

BatchNormResult batch_norm(const BatchNormInputs& in) {
  const double count = static_cast<double>(in.count);
  const at::ScalarType type = at_least_float(in.x.new_empty({0})).scalar_type();
  const at::Tensor mean64 = in.sums.select(0, 0).div(count);
  // Rounding may make a zero variance slightly negative, for which rsqrt is NaN.
  const at::Tensor var64 = in.sums.select(0, 1).div(count).sub_(mean64.mul(mean64)).clamp_min_(0.0);
  const at::Tensor mean = mean64.to(type), var = var64.to(type);
  BatchNormResult result;
  result.mean = mean;
  result.rstd = var64.add(in.eps).rsqrt_().to(type);
  // The evaluation form normalises with the given statistics, but refuses empty tensors.
  result.out = in.x.numel() == 0
                   ? at::empty_like(in.x)
                   : std::get<0>(at::native_batch_norm(in.x, optional(in.weight), optional(in.bias),
                                                       mean, var, false, in.momentum, in.eps));
  if (in.running_mean.defined()) {
    const double unbiased = count > 1 ? count / (count - 1) : 1.0;
    result.running_mean = in.running_mean.mul(1 - in.momentum).add_(mean64, in.momentum);
    result.running_var = in.running_var.mul(1 - in.momentum).add_(var64, in.momentum * unbiased);
  }
  return result;
}

at::Tensor batch_norm_backward_sums(const at::Tensor& grad, const at::Tensor& x,
                                    const at::Tensor& mean, const at::Tensor& rstd) {
  if (x.numel() == 0) return no_sums(x);
  if (!x.is_cpu()) {
    // The first two results are sum(grad) and sum(grad * (x - mean)). The gradients of weight and
    // bias, which it makes in the weight's type, are not requested.
    const auto sums = at::batch_norm_backward_reduce(grad.contiguous(), x.contiguous(), mean, rstd,
                                                     std::nullopt, true, false, false);
    return at::stack({std::get<0>(sums), std::get<1>(sums).mul(rstd)}).to(at::kDouble);
  }
  const auto sums = at::native_batch_norm_backward(at_least_float(grad), at_least_float(x),
                                                   std::nullopt, std::nullopt, std::nullopt, mean,
                                                   rstd, true, 0.0, {false, true, true});
  return at::stack({std::get<2>(sums), std::get<1>(sums)}).to(at::kDouble);
}

std::array<at::Tensor, 3> batch_norm_backward(const BatchNormBackwardInputs& in) {
  // With xhat = (x - mean) * rstd:
  //   grad_x = weight * rstd * (grad - sum(grad) / count - xhat * sum(grad * xhat) / count)
  const double count = static_cast<double>(in.count);
  const at::ScalarType type = in.mean.scalar_type();
  const at::Tensor grad_bias = in.sums.select(0, 0), grad_weight = in.sums.select(0, 1);
  at::Tensor a = in.rstd.to(at::kDouble);
  const at::Tensor rstd64 = a;
  if (in.weight.defined()) a = a.mul(in.weight);
  const at::Tensor b = a.mul(rstd64).mul_(grad_weight).div_(-count).to(type);
  const at::Tensor d = a.mul(grad_bias).div_(-count).to(type);
  a = a.to(type);
  at::Tensor out;
  const bool is_plain = in.x.is_cpu() && in.x.scalar_type() == at::kFloat &&
                        in.grad.scalar_type() == at::kFloat && in.x.is_contiguous();
  if (is_plain) {
    const at::Tensor mean = in.mean.contiguous(), grad = in.grad.contiguous();
    out = at::empty_like(in.x);
    combine_channels(grad, in.x,
                     {a.const_data_ptr<float>(), b.const_data_ptr<float>(),
                      mean.const_data_ptr<float>(), d.const_data_ptr<float>()},
                     out);
  } else {
    const at::Tensor centred = in.x.sub(along_channels(in.mean, in.x));
    out = centred.mul_(along_channels(b, in.x))
              .add_(along_channels(d, in.x))
              .addcmul_(in.grad.to(type), along_channels(a, in.x))
              .to(in.x.scalar_type());
  }
  const at::ScalarType parameter = in.weight.defined() ? in.weight.scalar_type() : type;
  return {out, grad_weight.to(parameter), grad_bias.to(parameter)};
}

}  // namespace motley::run
