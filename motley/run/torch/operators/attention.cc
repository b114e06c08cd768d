#include "motley/run/torch/operators/attention.h"

#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace motley::run {

namespace {

enum class AttentionBackend { kPlain, kCpuFlash, kFlash, kEfficient };

/// Results of _fused_sdp_choice.
constexpr std::int64_t kChoiceFlash = 1, kChoiceEfficient = 2, kChoiceCudnn = 3;

AttentionBackend choose_backend(const AttentionInputs& in) {
  if (in.q.size(-1) != in.v.size(-1) || in.q.numel() == 0 || in.k.numel() == 0)
    return AttentionBackend::kPlain;
  if (in.q.is_cpu()) return AttentionBackend::kCpuFlash;
  const std::optional<at::Tensor> mask = in.mask.defined() ? std::optional(in.mask) : std::nullopt;
  const std::int64_t choice =
      at::_fused_sdp_choice(in.q, in.k, in.v, mask, 0.0, in.is_causal, in.scale);
  const bool is_half = in.q.scalar_type() == at::kHalf || in.q.scalar_type() == at::kBFloat16;
  const bool aligned = in.q.size(-1) % 8 == 0;  // PyTorch pads heads outside its kernels
  if (!aligned) return AttentionBackend::kPlain;
  // With unequal lengths the flash kernel aligns the causal mask to the last key, PyTorch to the
  // first. cuDNN, which flash replaces here, supports both.
  const bool is_skewed = in.is_causal && in.q.size(2) != in.k.size(2);
  if ((choice == kChoiceFlash || choice == kChoiceCudnn) && is_half && !in.mask.defined() &&
      !is_skewed)
    return AttentionBackend::kFlash;
  if (choice == kChoiceEfficient || choice == kChoiceFlash || choice == kChoiceCudnn)
    return AttentionBackend::kEfficient;
  return AttentionBackend::kPlain;
}

/// Converts a boolean mask to numbers that are added to the scores.
at::Tensor additive(const at::Tensor& mask, at::ScalarType type) {
  if (!mask.defined() || mask.scalar_type() != at::kBool) return mask;
  return at::zeros(mask.sizes(), mask.options().dtype(type))
      .masked_fill_(mask.logical_not(), -std::numeric_limits<double>::infinity());
}

std::optional<at::Tensor> cpu_mask(const AttentionInputs& in) {
  if (!in.mask.defined()) return std::nullopt;
  return additive(in.mask, in.q.scalar_type());
}

/// Pads mask rows to 16 elements: the efficient kernel reads whole vectors of them.
at::Tensor efficient_mask(const AttentionInputs& in) {
  if (!in.mask.defined()) return {};
  at::Tensor mask = additive(in.mask, in.q.scalar_type());
  const std::int64_t keys = in.k.size(2), padding = (16 - keys % 16) % 16;
  mask = mask.expand({in.q.size(0), in.q.size(1), in.q.size(2), keys});
  if (padding == 0) return mask.stride(-1) == 1 ? mask : mask.contiguous();
  return at::constant_pad_nd(mask, {0, padding}).narrow(-1, 0, keys);
}

double scale_of(const AttentionInputs& in) {
  return in.scale.value_or(1.0 / std::sqrt(static_cast<double>(in.q.size(-1))));
}

at::Tensor scores(const AttentionInputs& in) {
  at::Tensor scores = at::matmul(in.q, in.k.transpose(-2, -1)).mul_(scale_of(in));
  if (in.mask.defined()) scores.add_(additive(in.mask, scores.scalar_type()));
  if (in.is_causal) {
    const at::Tensor seen =
        at::ones({in.q.size(2), in.k.size(2)}, in.q.options().dtype(at::kBool)).tril_();
    scores.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  return scores;
}

std::int64_t heads_a_group(const AttentionInputs& in) {
  return in.k.size(1) == 0 ? 1 : in.q.size(1) / in.k.size(1);
}

/// Expands grouped queries: repeats the heads of k and v for each head of q.
AttentionInputs with_all_heads(const AttentionInputs& in) {
  const std::int64_t group = heads_a_group(in);
  if (group == 1) return in;
  AttentionInputs all = in;
  all.k = in.k.repeat_interleave(group, 1);
  all.v = in.v.repeat_interleave(group, 1);
  return all;
}

/// Sums the gradients of a head that a group of q's heads shares.
at::Tensor sum_groups(const at::Tensor& grad, std::int64_t group) {
  if (group == 1) return grad;
  return grad.unflatten(1, {grad.size(1) / group, group}).sum(2);
}

/// With dropout 0 the kernels do not read the random state.
at::Tensor no_random_state(const at::Tensor& like) {
  return at::zeros({2}, like.options().dtype(at::kLong));
}

}  // namespace

std::pair<at::Tensor, at::Tensor> attention(const AttentionInputs& given) {
  const AttentionInputs in = with_all_heads(given);
  switch (choose_backend(in)) {
    case AttentionBackend::kCpuFlash: {
      auto [out, saved] = at::_scaled_dot_product_flash_attention_for_cpu(
          in.q, in.k, in.v, 0.0, in.is_causal, cpu_mask(in), in.scale);
      return {out, saved};
    }
    case AttentionBackend::kFlash: {
      auto result = at::_scaled_dot_product_flash_attention(in.q, in.k, in.v, 0.0, in.is_causal,
                                                            false, in.scale);
      return {std::get<0>(result), std::get<1>(result)};
    }
    case AttentionBackend::kEfficient: {
      const at::Tensor mask = efficient_mask(in);
      auto result = at::_scaled_dot_product_efficient_attention(
          in.q, in.k, in.v, mask.defined() ? std::optional(mask) : std::nullopt, true, 0.0,
          in.is_causal, in.scale);
      return {std::get<0>(result), std::get<1>(result)};
    }
    case AttentionBackend::kPlain:
      break;
  }
  return attention_by_operators(in);
}

namespace {

std::array<at::Tensor, 3> backward_of_all_heads(const AttentionInputs& in, const at::Tensor& grad,
                                                const at::Tensor& out, const at::Tensor& saved) {
  switch (choose_backend(in)) {
    case AttentionBackend::kCpuFlash: {
      auto [q, k, v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          grad, in.q, in.k, in.v, out, saved, 0.0, in.is_causal, cpu_mask(in), in.scale);
      return {q, k, v};
    }
    case AttentionBackend::kFlash: {
      const at::Tensor state = no_random_state(in.q);
      auto [q, k, v] = at::_scaled_dot_product_flash_attention_backward(
          grad, in.q, in.k, in.v, out, saved, at::Tensor(), at::Tensor(), in.q.size(2),
          in.k.size(2), 0.0, in.is_causal, state, state, in.scale);
      return {q, k, v};
    }
    case AttentionBackend::kEfficient: {
      const at::Tensor state = no_random_state(in.q)[0];
      auto [q, k, v, mask] = at::_scaled_dot_product_efficient_attention_backward(
          grad, in.q, in.k, in.v, efficient_mask(in), out, saved, state, state, 0.0,
          {true, true, true, false}, in.is_causal, in.scale);
      return {q, k, v};
    }
    case AttentionBackend::kPlain:
      break;
  }
  return attention_backward_by_operators(in, grad);
}

}  // namespace

std::array<at::Tensor, 3> attention_backward(const AttentionInputs& in, const at::Tensor& grad,
                                             const at::Tensor& out, const at::Tensor& saved) {
  auto [q, k, v] = backward_of_all_heads(with_all_heads(in), grad, out, saved);
  const std::int64_t group = heads_a_group(in);
  return {q, sum_groups(k, group), sum_groups(v, group)};
}

std::pair<at::Tensor, at::Tensor> attention_by_operators(const AttentionInputs& in) {
  const at::Tensor all = scores(in);
  return {at::matmul(at::softmax(all, -1), in.v), all.logsumexp(-1)};
}

std::array<at::Tensor, 3> attention_backward_by_operators(const AttentionInputs& in,
                                                          const at::Tensor& grad) {
  const at::Tensor share = at::softmax(scores(in), -1);
  const at::Tensor grad_share = at::matmul(grad, in.v.transpose(-2, -1));
  // d softmax: share * (grad - sum(grad * share)); the scale applies to both factors of the scores.
  const at::Tensor grad_scores =
      grad_share.sub(grad_share.mul(share).sum(-1, true)).mul_(share).mul_(scale_of(in));
  return {at::matmul(grad_scores, in.k), at::matmul(grad_scores.transpose(-2, -1), in.q),
          at::matmul(share.transpose(-2, -1), grad)};
}

}  // namespace motley::run
