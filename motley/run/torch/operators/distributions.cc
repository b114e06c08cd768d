#include "motley/run/torch/operators/distributions.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/frexp.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>

#include <array>
#include <bit>
#include <cmath>
#include <type_traits>
#include <utility>

namespace motley::run {

namespace {

constexpr std::array<std::pair<std::string_view, Distribution>, 5> kDistributions = {{
    {"uniform", Distribution::kUniform},
    {"exponential", Distribution::kExponential},
    {"normal", Distribution::kNormal},
    {"bits", Distribution::kBits},
    {"permutation", Distribution::kPermutation},
}};

// ---- Functions of doubles, and of tensors of doubles with the same roundings: V is either. No
// product is fused with a sum.

double choose(bool is, double a, double b) { return is ? a : b; }
at::Tensor choose(const at::Tensor& is, const at::Tensor& a, const at::Tensor& b) {
  return at::where(is, a, b);
}
double round_down(double x) { return std::floor(x); }
at::Tensor round_down(const at::Tensor& x) { return x.floor(); }

/// x = mantissa * 2^exponent, mantissa in [1/2, 1).
template <typename V>
struct Scaled {
  V mantissa, exponent;
};
Scaled<double> scaled(double x) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<std::int64_t>(bits >> 52) - 1022;
  return {std::bit_cast<double>((bits & kMantissa) | (std::uint64_t{1022} << 52)),
          static_cast<double>(exponent)};
}
Scaled<at::Tensor> scaled(const at::Tensor& x) {
  auto [mantissa, exponent] = at::frexp(x);
  return {mantissa, exponent.to(at::kDouble)};
}

double power_of_two(double exponent) {
  return std::bit_cast<double>((static_cast<std::int64_t>(exponent) + 1023) << 52);
}
at::Tensor power_of_two(const at::Tensor& exponent) {
  return exponent.to(at::kLong).add_(1023).__lshift__(52).view(at::kDouble);
}

/// c[0] + c[1] x + ...
template <typename V, std::size_t kTerms>
V polynomial(const V& x, const std::array<double, kTerms>& c) {
  V sum = x * 0.0 + c[kTerms - 1];
  for (std::size_t i = kTerms - 1; i > 0; --i) sum = sum * x + c[i - 1];
  return sum;
}

/// Of numbers in (0, 1): log(m) = 2 artanh((m - 1) / (m + 1)) with m in [1/sqrt(2), sqrt(2)), whose
/// series ends below 3e-17.
template <typename V>
V log_of(const V& x) {
  constexpr std::array kSeries = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                  1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  constexpr double kLog2 = 0.69314718055994530942, kRootHalf = 0.70710678118654752440;
  const Scaled<V> parts = scaled(x);
  const auto is_small = parts.mantissa < kRootHalf;
  const V m = choose(is_small, parts.mantissa * 2.0, parts.mantissa);
  const V e = choose(is_small, parts.exponent - 1.0, parts.exponent);
  const V s = (m - 1.0) / (m + 1.0);
  return e * kLog2 + s * polynomial(V(s * s), kSeries) * 2.0;
}

/// cos(2 pi t) for t in [0, 1), by the series around the nearest quarter, which end below 5e-17.
template <typename V>
V cosine_of_turn(const V& t) {
  constexpr std::array kCosine = {1.0,
                                  -1.0 / 2,
                                  1.0 / 24,
                                  -1.0 / 720,
                                  1.0 / 40320,
                                  -1.0 / 3628800,
                                  1.0 / 4.790016e8,
                                  -1.0 / 8.71782912e10,
                                  1.0 / 2.0922789888e13};
  constexpr std::array kSine = {1.0,
                                -1.0 / 6,
                                1.0 / 120,
                                -1.0 / 5040,
                                1.0 / 362880,
                                -1.0 / 39916800,
                                1.0 / 6.2270208e9,
                                -1.0 / 1.307674368e12,
                                1.0 / 3.55687428096e14};
  const V quarter = round_down(V(t * 4.0 + 0.5));
  const V angle = (t - quarter * 0.25) * 6.28318530717958647693;
  const V square = angle * angle;
  const V cosine = polynomial(square, kCosine), sine = angle * polynomial(square, kSine);
  // cos, -sin, -cos, sin, cos
  const V half = quarter * 0.5;
  const auto is_even = round_down(half) == half;
  const auto is_negative = (quarter - 1.5) * (quarter - 1.5) < 0.5;
  const V value = choose(is_even, cosine, sine);
  return choose(is_negative, V(value * -1.0), value);
}

/// Of positive numbers, by Heron's steps from (1 + a) / 2 for a in [1/2, 2): the first is off by 6
/// % at most, the fifth by less than 1e-23. PyTorch's own root is not rounded the same everywhere.
template <typename V>
V root_of(const V& x) {
  const Scaled<V> parts = scaled(x);
  const V half = round_down(V(parts.exponent * 0.5));
  const V a = parts.mantissa * (parts.exponent - half * 2.0 + 1.0);
  V y = (a + 1.0) * 0.5;
  for (int step = 0; step < 4; ++step) y = (y + a / y) * 0.5;
  return y * power_of_two(half);
}

template <typename V>
V exponential_of(const V& v) {
  return log_of(v) * -1.0;
}

template <typename V>
V normal_of(const V& v, const V& turn) {
  return root_of(V(log_of(v) * -2.0)) * cosine_of_turn(turn);
}

// ---- numbers of words

using Words = std::array<std::array<std::uint32_t, kPhiloxGroup>, 4>;

bool is_double(at::ScalarType dtype) { return dtype == at::kDouble; }

int words_of(Distribution distribution, at::ScalarType dtype) {
  switch (distribution) {
    case Distribution::kUniform:
    case Distribution::kExponential:
      return is_double(dtype) ? 2 : 1;
    case Distribution::kNormal:
      return is_double(dtype) ? 4 : 2;
    case Distribution::kBits:
    case Distribution::kPermutation:
      break;
  }
  return 2;
}

/// Bits of a uniform number: as many as the type has digits.
int bits_of(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? 8 : dtype == at::kHalf ? 11 : dtype == at::kDouble ? 53 : 24;
}

std::int64_t joined(std::uint32_t high, std::uint32_t low, int bits) {
  const std::uint64_t both = (std::uint64_t{high} << 32) | low;
  return static_cast<std::int64_t>(both >> (64 - bits));
}

/// What is drawn for place i of a group.
class NumberMaker {
 public:
  NumberMaker(Distribution distribution, at::ScalarType dtype)
      : distribution_(distribution), is_wide_(is_double(dtype)), bits_(bits_of(dtype)) {}

  std::int64_t bits(const Words& w, int i) const { return joined(at(w, 0, i), at(w, 1, i), 63); }

  double number(const Words& w, int i) const {
    if (distribution_ == Distribution::kUniform)
      return static_cast<double>(joined(at(w, 0, i), is_wide_ ? at(w, 1, i) : 0, bits_)) *
             std::ldexp(1.0, -bits_);
    const double v = inner(w, 0, i);
    return distribution_ == Distribution::kExponential
               ? exponential_of(v)
               : normal_of(v, inner(w, is_wide_ ? 2 : 1, i));
  }

 private:
  static std::uint32_t at(const Words& w, int word, int i) {
    return w[static_cast<std::size_t>(word)][static_cast<std::size_t>(i)];
  }
  /// Between 0 and 1, from the words that begin with this one.
  double inner(const Words& w, int word, int i) const {
    if (is_wide_)
      return (static_cast<double>(joined(at(w, word, i), at(w, word + 1, i), 52)) + 0.5) * 0x1p-52;
    return (static_cast<double>(at(w, word, i)) + 0.5) * 0x1p-32;
  }

  Distribution distribution_;
  bool is_wide_;
  int bits_;
};

/// Calls `put(local, words, i)` for each element of a stretch, a group of words at a time.
template <typename Put>
void for_each_element(RandomStream stream, int words, std::int64_t index, std::int64_t local,
                      std::int64_t count, const Put& put) {
  Words w;
  const std::int64_t end = index + count;
  for (std::int64_t group = index / kPhiloxGroup; group * kPhiloxGroup < end; ++group) {
    for (stream.word = 0; stream.word < words; ++stream.word)
      philox_group(stream, static_cast<std::uint64_t>(group),
                   w[static_cast<std::size_t>(stream.word)].data());
    const std::int64_t base = group * kPhiloxGroup;
    const std::int64_t from = std::max(index, base), to = std::min(end, base + kPhiloxGroup);
    for (std::int64_t e = from; e < to; ++e) put(local + e - index, w, static_cast<int>(e - base));
  }
}

template <typename T>
void fill_cpu(const Draw& what, const RandomStream& stream, at::Tensor& out) {
  constexpr std::int64_t kGrain = 4096;
  const NumberMaker make(what.distribution, what.dtype);
  const int words = words_of(what.distribution, what.dtype);
  T* target = out.mutable_data_ptr<T>();
  const auto put = [&](std::int64_t local, const Words& w, int i) {
    if constexpr (std::is_same_v<T, std::int64_t>)
      target[local] = make.bits(w, i);
    else
      target[local] = static_cast<T>(make.number(w, i));
  };
  at::parallel_for(0, out.numel(), kGrain, [&](std::int64_t from, std::int64_t to) {
    for_each_stretch(what.place, out.numel(), from, to,
                     [&](std::int64_t index, std::int64_t local, std::int64_t count) {
                       for_each_element(stream, words, index, local, count, put);
                     });
  });
}

at::Tensor draw_cpu(const Draw& what, const RandomStream& stream) {
  at::Tensor out = at::empty(what.shape, what.dtype);
  switch (what.dtype) {
    case at::kLong:
      fill_cpu<std::int64_t>(what, stream, out);
      break;
    case at::kDouble:
      fill_cpu<double>(what, stream, out);
      break;
    case at::kHalf:
      fill_cpu<at::Half>(what, stream, out);
      break;
    case at::kBFloat16:
      fill_cpu<at::BFloat16>(what, stream, out);
      break;
    default:
      fill_cpu<float>(what, stream, out);
  }
  return out;
}

// ---- the same by tensor operators

/// The upper bits of two words.
at::Tensor joined_by_operators(const at::Tensor& high, const at::Tensor& low, int bits) {
  return high.__lshift__(bits - 32).bitwise_or_(low.__rshift__(64 - bits));
}

class OperatorWords {
 public:
  OperatorWords(const Draw& what, const RandomStream& stream, at::Device device)
      : stream_(stream),
        indices_(global_indices(what.place, c10::multiply_integers(what.shape), device)),
        is_wide_(is_double(what.dtype)) {}

  at::Tensor word(int number) const {
    RandomStream stream = stream_;
    stream.word = number;
    return philox_by_operators(stream, indices_);
  }
  at::Tensor bits(int count) const { return joined_by_operators(word(0), word(1), count); }
  at::Tensor uniform(int bits_wanted) const {
    const at::Tensor whole = is_wide_ ? bits(bits_wanted) : word(0).__rshift__(32 - bits_wanted);
    return whole.to(at::kDouble).mul_(std::ldexp(1.0, -bits_wanted));
  }
  at::Tensor inner(int first) const {
    if (!is_wide_) return word(first).to(at::kDouble).add_(0.5).mul_(0x1p-32);
    return joined_by_operators(word(first), word(first + 1), 52)
        .to(at::kDouble)
        .add_(0.5)
        .mul_(0x1p-52);
  }
  at::Tensor second() const { return inner(is_wide_ ? 2 : 1); }

 private:
  RandomStream stream_;
  at::Tensor indices_;
  bool is_wide_;
};

at::Tensor numbers_by_operators(const Draw& what, const OperatorWords& words) {
  switch (what.distribution) {
    case Distribution::kUniform:
      return words.uniform(bits_of(what.dtype));
    case Distribution::kExponential:
      return exponential_of(words.inner(0));
    case Distribution::kNormal:
      return normal_of(words.inner(0), words.second());
    case Distribution::kBits:
    case Distribution::kPermutation:
      break;
  }
  return words.bits(63);
}

/// Equal numbers, if there are any, keep their order.
template <typename DrawKeys>
at::Tensor permutation(const Draw& what, const DrawKeys& draw_keys) {
  Draw keys = what;
  keys.distribution = Distribution::kUniform;
  keys.dtype = at::kDouble;
  return std::get<1>(at::sort(draw_keys(keys), /*stable=*/true, 0, /*descending=*/false));
}

}  // namespace

std::optional<Distribution> find_distribution(std::string_view name) {
  for (const auto& [known, distribution] : kDistributions)
    if (known == name) return distribution;
  return std::nullopt;
}

bool gives(Distribution distribution, at::ScalarType dtype) {
  const bool is_number =
      distribution != Distribution::kBits && distribution != Distribution::kPermutation;
  if (!is_number) return dtype == at::kLong;
  return dtype == at::kFloat || dtype == at::kDouble || dtype == at::kHalf ||
         dtype == at::kBFloat16;
}

at::Tensor draw(const Draw& what, const RandomStream& stream, at::Device device) {
  if (!device.is_cpu()) return draw_by_operators(what, stream, device);
  if (what.distribution == Distribution::kPermutation)
    return permutation(what, [&](const Draw& keys) { return draw_cpu(keys, stream); });
  return draw_cpu(what, stream);
}

at::Tensor draw_by_operators(const Draw& what, const RandomStream& stream, at::Device device) {
  if (what.distribution == Distribution::kPermutation)
    return permutation(what,
                       [&](const Draw& keys) { return draw_by_operators(keys, stream, device); });
  return numbers_by_operators(what, OperatorWords(what, stream, device))
      .to(what.dtype)
      .view(what.shape);
}

}  // namespace motley::run
