#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "motley/run/torch/operators/element_place.h"
#include "motley/run/torch/operators/philox.h"

namespace motley::run {

/// What a draw gives for each element, by words w0, w1, ... of its streams (philox.h). u is w0's
/// upper 24 bits (f16: 11, bf16: 8) / 2^24, in double precision (w0, w1)'s upper 53; v is exact and
/// never 0 nor 1: (w0 + 1/2) / 2^32, in double precision with the upper 52 bits of (w0, w1).
enum class Distribution : std::uint8_t {
  kUniform,      ///< u, in [0, 1)
  kExponential,  ///< -log(v)
  kNormal,       ///< sqrt(-2 log(v)) * cos(2 pi v'), v' of the next words (Box and Muller, 1958)
  kBits,         ///< a number in [0, 2^63): the upper 63 bits of (w0, w1)
  kPermutation,  ///< of 0, 1, ..., n-1: the order of u in double precision
};

/// "uniform", "exponential", "normal", "bits", "permutation"; empty: no such one.
std::optional<Distribution> find_distribution(std::string_view name);

/// Has it elements of this type? Floating ones; integers of 64 bits for bits and permutations.
bool gives(Distribution distribution, at::ScalarType dtype);

/// What is drawn: `shape` elements at this place of the global tensor. A permutation is of one
/// dimension, and whole.
struct Draw {
  Distribution distribution = Distribution::kUniform;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  ElementPlace place;
};

/// Equal bits on every device kind, thread count and split: logarithm, root and cosine are made of
/// sums, products and quotients in double precision, rounded once at the end.
at::Tensor draw(const Draw& what, const RandomStream& stream, at::Device device);

/// The same by tensor operators: what devices without a kernel of ours use.
at::Tensor draw_by_operators(const Draw& what, const RandomStream& stream, at::Device device);

}  // namespace motley::run
