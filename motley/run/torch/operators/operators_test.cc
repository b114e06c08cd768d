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
#include <map>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/run/torch/operators/attention.h"
#include "motley/run/torch/operators/batch_norm.h"
#include "motley/run/torch/operators/distributions.h"
#include "motley/run/torch/operators/dropout.h"

namespace motley::run {
namespace {

double difference(const at::Tensor& a, const at::Tensor& b) {
  EXPECT_EQ(a.sizes(), b.sizes());
  return a.to(at::kDouble).sub(b.to(at::kDouble)).abs().max().item().toDouble();
}

TEST(Philox, WordsAreThoseOfTheGenerator) {
  const RandomStream stream{0x123456789abcdefULL, 5, 42};
  std::array<std::uint32_t, kPhiloxGroup> words;
  for (const std::uint64_t group : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{1} << 30}) {
    philox_group(stream, group, words.data());
    for (std::uint64_t e = 0; e < kPhiloxGroup; ++e) {
      const std::uint64_t block = group * 16 + e % 16;
      const auto expected = philox4x32(
          {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 42, 5},
          {0x89abcdefu, 0x1234567u});
      ASSERT_EQ(words[e], expected[e / 16]) << "group " << group << " element " << e;
    }
  }
}

TEST(Dropout, MaskDoesNotDependOnTheSplit) {
  // [3, 10, 7]: batch is the middle dimension, split 6 and 4.
  const at::Tensor x = at::randn({3, 10, 7});
  const RandomStream stream{1, 2, 3};
  const auto [out, mask] = dropout(x, 0.3, {3, 7, 0, 10}, stream);
  const auto [out_a, mask_a] = dropout(x.narrow(1, 0, 6), 0.3, {3, 7, 0, 10}, stream);
  const auto [out_b, mask_b] = dropout(x.narrow(1, 6, 4), 0.3, {3, 7, 6, 10}, stream);
  EXPECT_TRUE(at::cat({mask_a, mask_b}, 1).equal(mask));
  EXPECT_TRUE(at::cat({out_a, out_b}, 1).equal(out));
  EXPECT_TRUE(out.equal(x.mul(mask).mul(1.0 / 0.7)) ||
              at::allclose(out, x.mul(mask).mul(1.0 / 0.7), 1e-7, 0));
}

TEST(Dropout, KeepsTheRightShareAndDiffersByStepAndOperator) {
  const at::Tensor x = at::zeros({100000});
  const ElementPlace place{1, 1, 0, 100000};
  const at::Tensor mask = dropout(x, 0.1, place, {7, 0, 0}).second;
  // Binomial: sd of the share is sqrt(0.1 * 0.9 / 1e5) = 0.00095; five of them.
  EXPECT_NEAR(mask.to(at::kDouble).mean().item().toDouble(), 0.9, 0.005);
  for (const RandomStream& other :
       {RandomStream{7, 1, 0}, RandomStream{7, 0, 1}, RandomStream{8, 0, 0}}) {
    const at::Tensor both = dropout(x, 0.1, place, other).second.logical_and(mask);
    EXPECT_NEAR(both.to(at::kDouble).mean().item().toDouble(), 0.81, 0.01);
  }
  EXPECT_EQ(dropout(x, 0.0, place, {7, 0, 0}).second.sum().item().toLong(), 100000);
  EXPECT_EQ(dropout(x, 1.0, place, {7, 0, 0}).second.sum().item().toLong(), 0);
}

TEST(Dropout, TensorOperatorsGiveTheSameBits) {
  const at::Tensor x = at::randn({4, 5, 33});
  const RandomStream stream{0xfedcba9876543210ULL, 1000, 17};
  const ElementPlace place{4, 33, 3, 11};
  const at::Tensor mask = dropout(x, 0.25, place, stream).second;
  EXPECT_TRUE(dropout_mask_by_operators(4 * 5 * 33, 0.25, place, stream, at::kCPU)
                  .view({4, 5, 33})
                  .equal(mask));
}

TEST(Dropout, TensorOperatorsDrawManyElementsPieceByPiece) {
  constexpr std::int64_t kRow = (1 << 19) + 5;
  const RandomStream stream{5, 6, 7};
  const ElementPlace place{3, 1, 9, kRow + 20};
  const at::Tensor mask = dropout(at::zeros({3, kRow}), 0.25, place, stream).second;
  EXPECT_TRUE(dropout_mask_by_operators(3 * kRow, 0.25, place, stream, at::kCPU)
                  .view({3, kRow})
                  .equal(mask));
}

TEST(Dropout, ThreadsGiveTheSameBits) {
  const at::Tensor x = at::randn({1 << 16});
  const ElementPlace place{1, 1, 0, 1 << 16};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const auto [out, mask] = dropout(x, 0.4, place, {3, 2, 1});
  at::set_num_threads(2);
  const auto [parallel_out, parallel_mask] = dropout(x, 0.4, place, {3, 2, 1});
  at::set_num_threads(threads);
  EXPECT_TRUE(parallel_mask.equal(mask));
  EXPECT_TRUE(parallel_out.equal(out));
}

TEST(Dropout, LowPrecision) {
  const at::Tensor x = at::randn({64}).to(at::kBFloat16);
  const auto [out, mask] = dropout(x, 0.5, {1, 1, 0, 64}, {1, 1, 1});
  EXPECT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(out.equal(x.mul(mask).mul(2.0)));
}

TEST(Dropout, KeepsWhereTheUniformNumberIsAtLeastP) {
  const at::Tensor x = at::zeros({1000});
  const ElementPlace place{1, 1, 0, 1000};
  const at::Tensor uniform =
      draw({Distribution::kUniform, {1000}, at::kFloat, place}, {7, 1, 2}, at::kCPU);
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0})
    EXPECT_TRUE(dropout(x, p, place, {7, 1, 2}).second.equal(uniform.ge(p))) << p;
}

// ---- distributions

constexpr std::int64_t kMany = 1 << 17;

at::Tensor many(Distribution distribution, const RandomStream& stream,
                at::ScalarType dtype = at::kFloat) {
  return draw({distribution, {kMany}, dtype, {1, 1, 0, kMany}}, stream, at::kCPU).to(at::kDouble);
}

/// The largest difference between the shares below each number and what `share_below` says.
double kolmogorov(const at::Tensor& drawn, double (*share_below)(double)) {
  const at::Tensor sorted = std::get<0>(drawn.sort());
  const double* x = sorted.const_data_ptr<double>();
  const auto n = static_cast<double>(sorted.numel());
  double worst = 0;
  for (std::int64_t i = 0; i < sorted.numel(); ++i) {
    const double below = share_below(x[i]), at = static_cast<double>(i);
    worst = std::max({worst, below - at / n, (at + 1) / n - below});
  }
  return worst;
}

double mean(const at::Tensor& x) { return x.mean().item().toDouble(); }

/// Of standardised numbers: 0 if they have nothing to do with one another, and then it deviates by
/// 1 / sqrt(n).
double correlation(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.sub(a.mean()), y = b.sub(b.mean());
  return mean(x.mul(y)) / std::sqrt(mean(x.mul(x)) * mean(y.mul(y)));
}

struct Continuous {
  Distribution distribution;
  double (*share_below)(double);
};
constexpr std::array<Continuous, 3> kContinuous = {{
    {Distribution::kUniform, [](double x) { return x; }},
    {Distribution::kExponential, [](double x) { return 1 - std::exp(-x); }},
    {Distribution::kNormal, [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }},
}};

TEST(Draw, FollowsItsDistribution) {
  // Kolmogorov: sqrt(n) D exceeds 2.0 once in 1,500 times, of six fixed draws.
  for (const Continuous& each : kContinuous)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
      EXPECT_LT(kolmogorov(many(each.distribution, {11, 3, 5}, dtype), each.share_below),
                2.0 / std::sqrt(static_cast<double>(kMany)))
          << static_cast<int>(each.distribution) << " " << dtype;
}

TEST(Draw, HasTheMomentsOfItsDistribution) {
  // Standard deviations of the mean of x, x^2, ... are sqrt((E x^2k - (E x^k)^2) / n); five each.
  const double sd = 5 / std::sqrt(static_cast<double>(kMany));
  const at::Tensor u = many(Distribution::kUniform, {1, 2, 3});
  EXPECT_NEAR(mean(u), 1.0 / 2, sd * std::sqrt(1.0 / 12));
  EXPECT_NEAR(mean(u.pow(2)), 1.0 / 3, sd * std::sqrt(1.0 / 5 - 1.0 / 9));
  const at::Tensor e = many(Distribution::kExponential, {1, 2, 3});
  EXPECT_NEAR(mean(e), 1, sd * std::sqrt(2.0 - 1));
  EXPECT_NEAR(mean(e.pow(2)), 2, sd * std::sqrt(24.0 - 4));
  const at::Tensor z = many(Distribution::kNormal, {1, 2, 3});
  EXPECT_NEAR(mean(z), 0, sd);
  EXPECT_NEAR(mean(z.pow(2)), 1, sd * std::sqrt(3.0 - 1));
  EXPECT_NEAR(mean(z.pow(3)), 0, sd * std::sqrt(15.0));
  EXPECT_NEAR(mean(z.pow(4)), 3, sd * std::sqrt(105.0 - 9));
}

TEST(Draw, HasNothingToDoWithNeighboursOtherStepsDrawsAndSeeds) {
  const double bound = 5 / std::sqrt(static_cast<double>(kMany));
  for (const Continuous& each : kContinuous) {
    const at::Tensor x = many(each.distribution, {7, 4, 9});
    for (const std::int64_t distance : {1, 2, 16, 64})
      EXPECT_LT(std::abs(correlation(x.narrow(0, 0, kMany - distance),
                                     x.narrow(0, distance, kMany - distance))),
                bound)
          << distance;
    for (const RandomStream& other :
         {RandomStream{8, 4, 9}, RandomStream{7, 5, 9}, RandomStream{7, 4, 10}})
      EXPECT_LT(std::abs(correlation(x, many(each.distribution, other))), bound);
  }
}

TEST(Draw, UniformNumbersHaveTheDigitsOfTheirType) {
  const auto digits = [](at::ScalarType dtype, int bits) {
    const at::Tensor x = many(Distribution::kUniform, {5, 0, 0}, dtype);
    const at::Tensor scaled = x.mul(std::ldexp(1.0, bits));
    EXPECT_TRUE(scaled.equal(scaled.floor())) << dtype;
    EXPECT_FALSE(scaled.div(2).equal(scaled.div(2).floor())) << dtype;
    EXPECT_TRUE(x.ge(0).logical_and(x.lt(1)).all().item().toBool()) << dtype;
  };
  digits(at::kBFloat16, 8);
  digits(at::kHalf, 11);
  digits(at::kFloat, 24);
  digits(at::kDouble, 53);
}

TEST(Draw, BitsAreEvenlySpread) {
  // Each of seven remainders has a share of 1/7, which deviates by sqrt(1/7 * 6/7 / n); five.
  const at::Tensor bits =
      draw({Distribution::kBits, {kMany}, at::kLong, {1, 1, 0, kMany}}, {3, 1, 4}, at::kCPU);
  EXPECT_TRUE(bits.ge(0).all().item().toBool());
  for (std::int64_t i = 0; i < 7; ++i)
    EXPECT_NEAR(mean(bits.remainder(7).eq(i).to(at::kDouble)), 1.0 / 7,
                5 * std::sqrt(6.0 / 49 / static_cast<double>(kMany)));
}

TEST(Draw, PermutationsAreAllAlikeOften) {
  // 6,000 permutations of three: each of six comes 1,000 times, by sqrt(6000 * 1/6 * 5/6) = 28.9.
  std::map<std::vector<std::int64_t>, int> times;
  for (std::int64_t step = 0; step < 6000; ++step) {
    const at::Tensor order =
        draw({Distribution::kPermutation, {3}, at::kLong, {1, 1, 0, 3}}, {9, step, 0}, at::kCPU);
    const auto* first = order.const_data_ptr<std::int64_t>();
    ++times[{first, first + 3}];
  }
  EXPECT_EQ(times.size(), 6u);
  for (const auto& [order, count] : times) EXPECT_NEAR(count, 1000, 5 * 28.9);
}

/// Every distribution in each of its types.
std::vector<std::pair<Distribution, at::ScalarType>> all_draws() {
  std::vector<std::pair<Distribution, at::ScalarType>> all = {{Distribution::kBits, at::kLong}};
  for (const Continuous& each : kContinuous)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
      all.emplace_back(each.distribution, dtype);
  return all;
}

TEST(Draw, TensorOperatorsGiveTheSameBits) {
  const RandomStream stream{0xfedcba9876543210ULL, 1000, 17};
  // 4 rows of 5 of 11, 33 each, in the second of three micro-batches with 2 rows of samples.
  const ElementPlace place{4, 33, 3, 11, 2 * 11 * 33, 1, 3};
  for (const auto& [distribution, dtype] : all_draws()) {
    const Draw what{distribution, {4, 5, 33}, dtype, place};
    EXPECT_TRUE(draw(what, stream, at::kCPU).equal(draw_by_operators(what, stream, at::kCPU)))
        << static_cast<int>(distribution) << " " << dtype;
  }
  const Draw order{Distribution::kPermutation, {1000}, at::kLong, {1, 1, 0, 1000}};
  EXPECT_TRUE(draw(order, stream, at::kCPU).equal(draw_by_operators(order, stream, at::kCPU)));
}

TEST(Draw, PartsAndMicroBatchesGiveTheSameBitsAsTheWhole) {
  // [3, 8, 5]: rows of 5 of 8 samples, in two micro-batches of 4, each in parts of 3 and 1.
  const RandomStream stream{1, 2, 3};
  for (const auto& [distribution, dtype] : all_draws()) {
    const at::Tensor whole = draw({distribution, {3, 8, 5}, dtype, {3, 5, 0, 8}}, stream, at::kCPU);
    std::vector<at::Tensor> parts;
    for (std::int64_t m = 0; m < 2; ++m)
      for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 1}})
        parts.push_back(draw({distribution, {3, count, 5}, dtype, {3, 5, first, 4, 4 * 5, m, 2}},
                             stream, at::kCPU));
    EXPECT_TRUE(at::cat(parts, 1).equal(whole)) << static_cast<int>(distribution) << " " << dtype;
  }
}

TEST(Draw, ThreadsGiveTheSameBits) {
  const Draw what{Distribution::kNormal, {1 << 16}, at::kFloat, {1, 1, 0, 1 << 16}};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = draw(what, {3, 2, 1}, at::kCPU);
  at::set_num_threads(2);
  const at::Tensor parallel = draw(what, {3, 2, 1}, at::kCPU);
  at::set_num_threads(threads);
  EXPECT_TRUE(parallel.equal(alone));
}

/// Batch norm of `x` split at `cut`, as two ranks would do it, beside PyTorch's on the whole.
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
                      .logical_or(at::arange(6).eq(0));  // every row sees something
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
