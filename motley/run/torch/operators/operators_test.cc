// Operators of our own against plain ATen formulas, whole and split unevenly over ranks.

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "motley/run/torch/operators/attention.h"
#include "motley/run/torch/operators/batch_norm.h"

namespace motley::run {
namespace {

double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item().toDouble();
}

/// Batch norm of `x` split at `cut`, as two ranks compute it, against PyTorch's on the whole.
struct BatchNormCase {
  at::Tensor x, grad, weight, bias;
};

void expect_equals_whole(const BatchNormCase& c, const std::vector<std::int64_t>& cuts) {
  const double momentum = 0.1, eps = 1e-5;
  const at::Tensor running_mean = at::zeros({c.x.size(1)}), running_var = running_mean.add(1);
  at::Tensor new_mean = running_mean.clone(), new_var = running_var.clone();
  const auto [out, mean, rstd] =
      at::native_batch_norm(c.x, c.weight, c.bias, new_mean, new_var, true, momentum, eps);
  const auto expected = at::native_batch_norm_backward(c.grad, c.x, c.weight, {}, {}, mean, rstd,
                                                       true, eps, {true, true, true});
  const std::vector<at::Tensor> xs = c.x.split_with_sizes(cuts), gs = c.grad.split_with_sizes(cuts);
  const std::int64_t count = c.x.numel() / c.x.size(1);
  at::Tensor sums = at::zeros({2, c.x.size(1)}, at::kDouble), back = sums.clone();
  for (const at::Tensor& x : xs) sums.add_(batch_norm_sums(x));
  std::vector<BatchNormResult> results;
  for (const at::Tensor& x : xs)
    results.push_back(
        batch_norm({x, c.weight, c.bias, running_mean, running_var, sums, count, momentum, eps}));
  for (std::size_t i = 0; i < xs.size(); ++i)
    back.add_(batch_norm_backward_sums(gs[i], xs[i], results[i].mean, results[i].rstd));
  std::vector<at::Tensor> outs, grads;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    outs.push_back(results[i].out);
    const auto gradients = batch_norm_backward(
        {gs[i], xs[i], c.weight, results[i].mean, results[i].rstd, back, count});
    grads.push_back(gradients[0]);
    EXPECT_LT(difference(gradients[1], std::get<1>(expected)), 2e-5);
    EXPECT_LT(difference(gradients[2], std::get<2>(expected)), 2e-5);
  }
  EXPECT_LT(difference(at::cat(outs), out), 2e-6);
  EXPECT_LT(difference(at::cat(grads), std::get<0>(expected)), 2e-6);
  EXPECT_LT(difference(results[0].running_mean, new_mean), 1e-6);
  EXPECT_LT(difference(results[0].running_var, new_var), 1e-6);
}

TEST(BatchNorm, SplitEqualsWhole) {
  const BatchNormCase images = {at::randn({10, 6, 5, 4}).mul(3).add(1), at::randn({10, 6, 5, 4}),
                                at::rand({6}).add(0.5), at::randn({6})};
  expect_equals_whole(images, {10});
  expect_equals_whole(images, {7, 2, 1});
  expect_equals_whole(images, {7, 0, 3});
  const BatchNormCase rows = {at::randn({12, 6}), at::randn({12, 6}), images.weight, images.bias};
  expect_equals_whole(rows, {5, 7});
}

TEST(BatchNorm, OtherLayoutsAndDtypes) {
  const at::Tensor x = at::randn({6, 4, 3, 3}), grad = at::randn({6, 4, 3, 3});
  const at::Tensor weight = at::rand({4}), sums = batch_norm_sums(x);
  const BatchNormResult result = batch_norm({x, weight, {}, {}, {}, sums, 54, 0.1, 1e-5});
  EXPECT_FALSE(result.running_mean.defined());
  const at::Tensor back = batch_norm_backward_sums(grad, x, result.mean, result.rstd);
  const auto plain = batch_norm_backward({grad, x, weight, result.mean, result.rstd, back, 54});
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  const auto other = batch_norm_backward({grad, last, weight, result.mean, result.rstd, back, 54});
  EXPECT_LT(difference(plain[0], other[0]), 1e-6);
}

TEST(Attention, KernelEqualsPlainOperators) {
  for (const bool causal : {false, true}) {
    for (const bool masked : {false, true}) {
      if (causal && masked) continue;
      AttentionInputs in{at::randn({2, 3, 6, 8}), at::randn({2, 3, 6, 8}), at::randn({2, 3, 6, 8})};
      in.is_causal = causal;
      if (masked)
        in.mask = at::rand({2, 1, 6, 6})
                      .gt(0.3)
                      .logical_or(at::arange(6).eq(0));  // every row attends to something
      const at::Tensor grad = at::randn({2, 3, 6, 8});
      const auto [out, saved] = attention(in);
      const auto [plain_out, plain_saved] = attention_by_operators(in);
      EXPECT_LT(difference(out, plain_out), 2e-6);
      EXPECT_LT(difference(saved, plain_saved), 2e-6);
      const auto gradients = attention_backward(in, grad, out, saved);
      const auto plain = attention_backward_by_operators(in, grad);
      for (std::size_t i = 0; i < 3; ++i) EXPECT_LT(difference(gradients[i], plain[i]), 5e-6);
    }
  }
}

TEST(Attention, GroupedQueriesShareHeads) {
  AttentionInputs in{at::randn({2, 6, 5, 8}), at::randn({2, 2, 5, 8}), at::randn({2, 2, 5, 8})};
  in.is_causal = true;
  const at::Tensor grad = at::randn({2, 6, 5, 8});
  AttentionInputs all = in;  // heads 0 0 0 1 1 1
  const at::Tensor heads = at::arange(6).div(3, "floor");
  all.k = in.k.index_select(1, heads);
  all.v = in.v.index_select(1, heads);
  const auto [out, saved] = attention(in);
  EXPECT_LT(difference(out, at::scaled_dot_product_attention(in.q, in.k, in.v, std::nullopt, 0.0,
                                                             true, std::nullopt, true)),
            2e-6);
  const auto gradients = attention_backward(in, grad, out, saved);
  const auto plain = attention_backward_by_operators(all, grad);
  const at::Tensor none = at::zeros(in.k.sizes());
  EXPECT_LT(difference(gradients[0], plain[0]), 5e-6);
  EXPECT_LT(difference(gradients[1], none.index_add(1, heads, plain[1])), 5e-6);
  EXPECT_LT(difference(gradients[2], none.index_add(1, heads, plain[2])), 5e-6);
}

TEST(Attention, FallsBackWhereNoKernelFits) {
  AttentionInputs in{at::randn({1, 2, 5, 4}), at::randn({1, 2, 7, 4}), at::randn({1, 2, 7, 6})};
  in.scale = 0.3;
  const auto [out, saved] = attention(in);
  const at::Tensor expected =
      at::scaled_dot_product_attention(in.q, in.k, in.v, std::nullopt, 0.0, false, 0.3);
  EXPECT_LT(difference(out, expected), 2e-6);
}

}  // namespace
}  // namespace motley::run
