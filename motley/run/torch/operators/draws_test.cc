// Random numbers and dropout: their distributions, identical bits in any split, and the source of
// the GPU's kernels, run by this CPU.

#include <ATen/Parallel.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "motley/base/random.h"
#include "motley/run/torch/operators/device_kernels.h"
#include "motley/run/torch/operators/distributions.h"
#include "motley/run/torch/operators/dropout.h"

namespace motley::run {
namespace {

// ---- the same numbers by tensor operators

at::Tensor low(const at::Tensor& x) { return x.bitwise_and(0xFFFFFFFF); }
at::Tensor high(const at::Tensor& x) { return low(x.__rshift__(32)); }

at::Tensor series(const at::Tensor& x, const std::vector<double>& c) {
  at::Tensor sum = at::full_like(x, c.back());
  for (std::size_t i = c.size() - 1; i > 0; --i) sum = sum.mul(x).add(c[i - 1]);
  return sum;
}

at::Tensor log_by_operators(const at::Tensor& x) {
  const auto [mantissa, exponent] = at::frexp(x);
  const at::Tensor is_small = mantissa.lt(0.70710678118654752440);
  const at::Tensor m = at::where(is_small, mantissa.mul(2.0), mantissa);
  const at::Tensor e = exponent.to(at::kDouble).sub(is_small.to(at::kDouble));
  const at::Tensor s = m.sub(1.0).div(m.add(1.0));
  std::vector<double> terms;
  for (int i = 0; i < 11; ++i) terms.push_back(1.0 / (2 * i + 1));
  return e.mul(0.69314718055994530942).add(s.mul(series(s.mul(s), terms)).mul(2.0));
}

at::Tensor root_by_operators(const at::Tensor& x) {
  const auto [mantissa, exponent] = at::frexp(x);
  const at::Tensor half = exponent.to(at::kDouble).mul(0.5).floor();
  const at::Tensor a = mantissa.mul(exponent.to(at::kDouble).sub(half.mul(2.0)).add(1.0));
  at::Tensor y = a.add(1.0).mul(0.5);
  for (int step = 0; step < 4; ++step) y = y.add(a.div(y)).mul(0.5);
  return y.mul(half.to(at::kLong).add(1023).__lshift__(52).view(at::kDouble));
}

at::Tensor cosine_by_operators(const at::Tensor& turn) {
  const at::Tensor quarter = turn.mul(4.0).add(0.5).floor();
  const at::Tensor angle = turn.sub(quarter.mul(0.25)).mul(6.28318530717958647693);
  std::vector<double> even, odd;
  double factorial = 1;
  for (int i = 0; i < 18; ++i) {
    if (i > 0) factorial *= i;
    (i % 2 == 0 ? even : odd).push_back((i / 2 % 2 == 0 ? 1.0 : -1.0) / factorial);
  }
  const at::Tensor square = angle.mul(angle);
  const at::Tensor cosine = series(square, even), sine = angle.mul(series(square, odd));
  const at::Tensor value = at::where(quarter.remainder(2).eq(0), cosine, sine);
  return at::where(quarter.eq(1).logical_or(quarter.eq(2)), value.neg(), value);
}

/// Draws with PyTorch's 64-bit integers and doubles, all elements at once.
class Oracle {
 public:
  explicit Oracle(const DrawnElements& elements) : stream_(elements.stream) {
    const ElementPlace& place = elements.place;
    const at::Tensor local = at::arange(elements.count);
    const std::int64_t row = elements.count / place.outer;
    const at::Tensor here = local.div(row, "floor")
                                .mul(place.global * place.inner)
                                .add(local.remainder(row))
                                .add(place.first * place.inner);
    indices_ = here.div(place.run, "floor")
                   .mul(place.stride)
                   .add(place.skip)
                   .add(here.remainder(place.run));
  }

  at::Tensor word(int number) const {
    const at::Tensor block = indices_.div(64, "floor").mul(16).add(indices_.remainder(16));
    at::Tensor a = low(block), b = high(block);
    at::Tensor c = at::full_like(a, stream_.draw + (std::int64_t{number} << 30));
    at::Tensor d = at::full_like(a, stream_.step);
    auto k0 = static_cast<std::uint32_t>(stream_.seed), k1 = std::uint32_t(stream_.seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9, k1 += 0xBB67AE85) {
      const at::Tensor first = a.mul(0xD2511F53), second = c.mul(0xCD9E8D57);
      a = high(second).bitwise_xor(b).bitwise_xor(std::int64_t{k0});
      c = high(first).bitwise_xor(d).bitwise_xor(std::int64_t{k1});
      b = low(second);
      d = low(first);
    }
    const at::Tensor which = indices_.remainder(64).div(16, "floor");
    return at::where(which.lt(2), at::where(which.eq(0), a, b), at::where(which.eq(2), c, d));
  }

  at::Tensor draw(Distribution distribution, at::ScalarType dtype) const {
    const bool is_wide = dtype == at::kDouble;
    const auto inner = [&](int first) {
      const at::Tensor bits = is_wide ? upper(first, 52) : word(first);
      return bits.to(at::kDouble).add(0.5).mul(std::ldexp(1.0, is_wide ? -52 : -32));
    };
    if (distribution == Distribution::kBits) return upper(0, 63);
    if (distribution == Distribution::kExponential)
      return log_by_operators(inner(0)).neg().to(dtype);
    if (distribution == Distribution::kNormal)
      return root_by_operators(log_by_operators(inner(0)).mul(-2.0))
          .mul(cosine_by_operators(inner(is_wide ? 2 : 1)))
          .to(dtype);
    const int bits = is_wide ? 53 : dtype == at::kFloat ? 24 : dtype == at::kHalf ? 11 : 8;
    const at::Tensor whole = is_wide ? upper(0, bits) : word(0).__rshift__(32 - bits);
    return whole.to(at::kDouble).mul(std::ldexp(1.0, -bits)).to(dtype);
  }

 private:
  at::Tensor upper(int first, int bits) const {
    return word(first).__lshift__(bits - 32).bitwise_or(word(first + 1).__rshift__(64 - bits));
  }

  RandomStream stream_;
  at::Tensor indices_;
};

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
  const at::Tensor words = Oracle({4 * 5 * 33, place, stream}).word(0);
  EXPECT_TRUE(dropout(x, 0.25, place, stream).second.equal(words.ge(1 << 30).view({4, 5, 33})));
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

/// Returns the largest difference between the shares below each number and `share_below`.
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

double mean_of(const at::Tensor& x) { return x.mean().item().toDouble(); }

/// Returns the correlation of standardised numbers: 0 if independent, with deviation 1 / sqrt(n).
double correlation(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.sub(a.mean()), y = b.sub(b.mean());
  return mean_of(x.mul(y)) / std::sqrt(mean_of(x.mul(x)) * mean_of(y.mul(y)));
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
  EXPECT_NEAR(mean_of(u), 1.0 / 2, sd * std::sqrt(1.0 / 12));
  EXPECT_NEAR(mean_of(u.pow(2)), 1.0 / 3, sd * std::sqrt(1.0 / 5 - 1.0 / 9));
  const at::Tensor e = many(Distribution::kExponential, {1, 2, 3});
  EXPECT_NEAR(mean_of(e), 1, sd * std::sqrt(2.0 - 1));
  EXPECT_NEAR(mean_of(e.pow(2)), 2, sd * std::sqrt(24.0 - 4));
  const at::Tensor z = many(Distribution::kNormal, {1, 2, 3});
  EXPECT_NEAR(mean_of(z), 0, sd);
  EXPECT_NEAR(mean_of(z.pow(2)), 1, sd * std::sqrt(3.0 - 1));
  EXPECT_NEAR(mean_of(z.pow(3)), 0, sd * std::sqrt(15.0));
  EXPECT_NEAR(mean_of(z.pow(4)), 3, sd * std::sqrt(105.0 - 9));
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
    EXPECT_NEAR(mean_of(bits.remainder(7).eq(i).to(at::kDouble)), 1.0 / 7,
                5 * std::sqrt(6.0 / 49 / static_cast<double>(kMany)));
}

TEST(Draw, PermutationsAreAllIdenticalOften) {
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

std::vector<std::pair<Distribution, at::ScalarType>> all_draws() {
  std::vector<std::pair<Distribution, at::ScalarType>> all = {{Distribution::kBits, at::kLong}};
  for (const Continuous& each : kContinuous)
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
      all.emplace_back(each.distribution, dtype);
  return all;
}

// 4 rows of 5 of 11, 33 each, in the second of three micro-batches with 2 rows of samples.
constexpr ElementPlace kOddPlace{4, 33, 3, 11, 2 * 11 * 33, 2 * 11 * 33, 6 * 11 * 33};
constexpr RandomStream kOddStream{0xfedcba9876543210ULL, 1000, 17};

TEST(Draw, TensorOperatorsGiveTheSameBits) {
  const Oracle oracle({4 * 5 * 33, kOddPlace, kOddStream});
  for (const auto& [distribution, dtype] : all_draws()) {
    const at::Tensor drawn =
        draw({distribution, {4, 5, 33}, dtype, kOddPlace}, kOddStream, at::kCPU);
    EXPECT_TRUE(drawn.equal(oracle.draw(distribution, dtype).view({4, 5, 33})))
        << static_cast<int>(distribution) << " " << dtype;
  }
}

TEST(Draw, PermutationsAreTheOrderOfUniformNumbers) {
  const ElementPlace whole{1, 1, 0, 1000};
  const at::Tensor order =
      draw({Distribution::kPermutation, {1000}, at::kLong, whole}, kOddStream, at::kCPU);
  const at::Tensor keys =
      Oracle({1000, whole, kOddStream}).draw(Distribution::kUniform, at::kDouble);
  EXPECT_TRUE(keys.index_select(0, order).equal(std::get<0>(keys.sort())));
}

TEST(Draw, PartsAndMicroBatchesGiveTheSameBitsAsTheWhole) {
  // [3, 8, 5]: rows of 5 of 8 samples, in two micro-batches of 4, each in parts of 3 and 1.
  const RandomStream stream{1, 2, 3};
  for (const auto& [distribution, dtype] : all_draws()) {
    const at::Tensor whole = draw({distribution, {3, 8, 5}, dtype, {3, 5, 0, 8}}, stream, at::kCPU);
    std::vector<at::Tensor> parts;
    for (std::int64_t m = 0; m < 2; ++m)
      for (const auto& [first, count] : {std::pair<std::int64_t, std::int64_t>{0, 3}, {3, 1}})
        parts.push_back(
            draw({distribution, {3, count, 5}, dtype, {3, 5, first, 4, 4 * 5, m * 4 * 5, 8 * 5}},
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

// ---- what GPUs run

/// Runs the kernels' source, thread after thread.
at::Tensor draw_by_threads(const Draw& what, const RandomStream& stream) {
  at::Tensor out = at::empty(what.shape, what.dtype);
  const DrawCall call{{out.numel(), what.place, stream},
                      what.distribution,
                      *find_element_type(what.dtype),
                      out.mutable_data_ptr()};
  for (std::int64_t i = 0; i < kernel_threads(out.numel()); ++i) draw_elements(call, i);
  return out;
}

/// Places where a thread's four elements share a block, or do not, or begin in another.
std::vector<std::pair<std::vector<std::int64_t>, ElementPlace>> kernel_places() {
  return {{{4, 5, 33}, kOddPlace},
          {{3, 64}, {1, 64, 5, 20}},
          {{2, 3, 128}, {2, 128, 1, 4, 4 * 128, 1, 2}},
          {{1}, {1, 1, 7, 10}},
          {{777}, {1, 1, 16, 1000}}};
}

TEST(RandomKernels, ThreadsDrawTheBitsOfCpus) {
  for (const auto& [shape, place] : kernel_places())
    for (const auto& [distribution, dtype] : all_draws()) {
      const Draw what{distribution, shape, dtype, place};
      EXPECT_TRUE(draw_by_threads(what, kOddStream).equal(draw(what, kOddStream, at::kCPU)))
          << shape << " " << static_cast<int>(distribution) << " " << dtype;
    }
}

TEST(RandomKernels, ThreadsDropTheElementsThatCpusDrop) {
  for (const auto& [shape, place] : kernel_places())
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
      const at::Tensor x = at::randn(shape).to(dtype);
      const auto [out, mask] = dropout(x, 0.3, place, kOddStream);
      at::Tensor ours = at::empty_like(out), kept = at::empty_like(mask);
      DropoutCall call{.elements = {x.numel(), place, kOddStream},
                       .limit = std::uint64_t{5033165} << 8,  // 0.3f * 2^24, rounded up
                       .mask = kept.mutable_data_ptr<bool>(),
                       .scale = 1 / (1 - 0.3),
                       .type = *find_element_type(dtype),
                       .x = x.const_data_ptr(),
                       .out = ours.mutable_data_ptr()};
      for (std::int64_t i = 0; i < kernel_threads(x.numel()); ++i) drop_elements(call, i);
      EXPECT_TRUE(ours.equal(out) && kept.equal(mask)) << shape << " " << dtype;
      call.x = call.out = nullptr;
      kept.fill_(false);
      for (std::int64_t i = 0; i < kernel_threads(x.numel()); ++i) drop_elements(call, i);
      EXPECT_TRUE(kept.equal(mask)) << shape << " " << dtype;
    }
}

TEST(ElementTypes, RoundAsPyTorch) {
  // Each half and bfloat16, and floats around the middle between it and the next.
  for (std::uint32_t bits = 0; bits < (1 << 16); ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    const float wide[] = {at::Half(half.bits, at::Half::from_bits()),
                          at::BFloat16(brain.bits, at::BFloat16::from_bits())};
    if (std::isnan(wide[0]) || std::isnan(wide[1])) continue;
    ASSERT_EQ(take(&half), wide[0]);
    ASSERT_EQ(take(&brain), wide[1]);
    for (const float value : wide)
      for (const std::int32_t next : {-0x8001, -0x8000, -0x1001, -0x1000, -0xFFF, -1, 0, 1, 0x7FFF,
                                      0xFFF, 0x1000, 0x1001, 0x8000, 0x8001}) {
        const float near = std::bit_cast<float>(std::bit_cast<std::int32_t>(value) + next);
        if (std::isnan(near)) continue;
        Half to_half;
        BFloat16 to_brain;
        put(&to_half, near);
        put(&to_brain, near);
        ASSERT_EQ(to_half.bits, at::Half(near).x) << near;
        ASSERT_EQ(to_brain.bits, at::BFloat16(near).x) << near;
      }
  }
  Half half;
  put(&half, std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(std::isnan(take(&half)));
}

}  // namespace
}  // namespace motley::run
