#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <utility>

namespace motley::run {

/// Scaled dot-product attention over [B, H, S, D], without dropout. k and v may have fewer heads
/// than q; each then serves equally many consecutive heads of q (grouped queries).
struct AttentionInputs {
  at::Tensor q, k, v;
  at::Tensor mask;  ///< undefined: none; boolean (true: attend) or added to the scores
  bool is_causal = false;
  std::optional<double> scale;  ///< empty: 1 / sqrt(D)
};

/// Returns the output and an opaque state for the backward pass (the log-sum-exp of each row of
/// scores). The inputs alone determine the kernel, so both passes use the same: CPU: flash; CUDA:
/// flash or memory-efficient, as in PyTorch; else plain operators, with B*H*S*S scores in memory.
std::pair<at::Tensor, at::Tensor> attention(const AttentionInputs& inputs);

/// Returns the gradients of q, k and v.
std::array<at::Tensor, 3> attention_backward(const AttentionInputs& inputs, const at::Tensor& grad,
                                             const at::Tensor& out, const at::Tensor& saved);

/// The plain form, for any device and equal numbers of heads; fallback of `attention`.
std::pair<at::Tensor, at::Tensor> attention_by_operators(const AttentionInputs& inputs);
std::array<at::Tensor, 3> attention_backward_by_operators(const AttentionInputs& inputs,
                                                          const at::Tensor& grad);

}  // namespace motley::run
