#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "motley/run/torch/operators/element_place.h"
#include "motley/run/torch/operators/philox.h"
#include "motley/run/torch/operators/random_numbers.h"

namespace motley::run {

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

/// Equal bits on every device kind, thread count and split. Needs no memory beside the result, but
/// for permutations, which are sorted. `what` must give its type.
at::Tensor draw(const Draw& what, const RandomStream& stream, at::Device device);

}  // namespace motley::run
