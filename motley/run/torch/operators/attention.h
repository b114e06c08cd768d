#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>
#include <utility>

namespace motley::run {

/// Scaled dot-product attention over [B, H, S, D], without dropout. k and v may have fewer heads
/// than q: then each of theirs serves as many consecutive ones of q (grouped queries).
struct AttentionInputs {
  at::Tensor q, k, v;
  at::Tensor mask;  ///< undefined: none; boolean (true: attend) or added to the scores
  bool is_causal = false;
  std::optional<double> scale;  ///< empty: 1 / sqrt(D)
};

/// Output, and an opaque state for the backward pass (the log-sum-exp of each row of scores). The
/// kernel is chosen from the inputs alone, so that both passes choose the same one: CPU: flash;
/// CUDA: flash or memory-efficient, as PyTorch would; where no kernel takes the inputs: plain
/// operators, with B*H*S*S scores in memory.
std::pair<at::Tensor, at::Tensor> attention(const AttentionInputs& inputs);

/// Gradients of q, k, v.
std::array<at::Tensor, 3> attention_backward(const AttentionInputs& inputs, const at::Tensor& grad,
                                             const at::Tensor& out, const at::Tensor& saved);

/// The plain form, for any device and equal numbers of heads; `attention` falls back to it.
std::pair<at::Tensor, at::Tensor> attention_by_operators(const AttentionInputs& inputs);
std::array<at::Tensor, 3> attention_backward_by_operators(const AttentionInputs& inputs,
                                                          const at::Tensor& grad);

}  // namespace motley::run
