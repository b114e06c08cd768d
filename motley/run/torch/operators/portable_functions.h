#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace motley::run {

// Functions of doubles that all processors compute alike, from sums, products and quotients, which
// IEEE 754 rounds in one way, never fused. Also compiled for GPUs at run time: see philox.h.

/// x = mantissa * 2^exponent, mantissa in [1/2, 1).
struct Scaled {
  double mantissa, exponent;
};
inline Scaled scaled(double x) {
  constexpr std::uint64_t kMantissa = (std::uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto exponent = static_cast<std::int64_t>(bits >> 52) - 1022;
  return {std::bit_cast<double>((bits & kMantissa) | (std::uint64_t{1022} << 52)),
          static_cast<double>(exponent)};
}

inline double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::int64_t>(exponent + 1023) << 52);
}

/// Returns c[0] + c[1] x + ...
template <int kTerms>
double polynomial(double x, const double (&c)[kTerms]) {
  double sum = c[kTerms - 1];
  for (int i = kTerms - 1; i > 0; --i) sum = sum * x + c[i - 1];
  return sum;
}

/// Returns the logarithm of a number in (0, 1): log(m) = 2 artanh((m - 1) / (m + 1)) with m in
/// [1/sqrt(2), sqrt(2)); the series is cut below 3e-17.
inline double log_of(double x) {
  constexpr double kSeries[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
  constexpr double kLog2 = 0.69314718055994530942, kRootHalf = 0.70710678118654752440;
  const Scaled parts = scaled(x);
  const bool is_small = parts.mantissa < kRootHalf;
  const double m = is_small ? parts.mantissa * 2.0 : parts.mantissa;
  const double e = is_small ? parts.exponent - 1.0 : parts.exponent;
  const double s = (m - 1.0) / (m + 1.0);
  return e * kLog2 + s * polynomial(s * s, kSeries) * 2.0;
}

/// Returns cos(2 pi t) for t in [0, 1), by series around the nearest quarter, cut below 5e-17.
inline double cosine_of_turn(double t) {
  constexpr double kCosine[] = {1.0,
                                -1.0 / 2,
                                1.0 / 24,
                                -1.0 / 720,
                                1.0 / 40320,
                                -1.0 / 3628800,
                                1.0 / 4.790016e8,
                                -1.0 / 8.71782912e10,
                                1.0 / 2.0922789888e13};
  constexpr double kSine[] = {1.0,
                              -1.0 / 6,
                              1.0 / 120,
                              -1.0 / 5040,
                              1.0 / 362880,
                              -1.0 / 39916800,
                              1.0 / 6.2270208e9,
                              -1.0 / 1.307674368e12,
                              1.0 / 3.55687428096e14};
  const double quarter = std::floor(t * 4.0 + 0.5);
  const double angle = (t - quarter * 0.25) * 6.28318530717958647693;
  const double square = angle * angle;
  const double cosine = polynomial(square, kCosine), sine = angle * polynomial(square, kSine);
  const auto turn = static_cast<int>(quarter);  // cos, -sin, -cos, sin, cos
  const double value = turn % 2 == 0 ? cosine : sine;
  return turn == 1 || turn == 2 ? -value : value;
}

/// Returns the root of a positive number, by Heron's steps from (1 + a) / 2 for a in [1/2, 2): the
/// first is off by at most 6 %, the fifth by less than 1e-23. PyTorch's root varies in rounding.
inline double root_of(double x) {
  const Scaled parts = scaled(x);
  const double half = std::floor(parts.exponent * 0.5);
  const double a = parts.mantissa * (parts.exponent - half * 2.0 + 1.0);
  double y = (a + 1.0) * 0.5;
  for (int step = 0; step < 4; ++step) y = (y + a / y) * 0.5;
  return y * power_of_two(static_cast<int>(half));
}

}  // namespace motley::run
