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

/// Parses "uniform", "exponential", "normal", "bits" or "permutation"; empty: unknown.
std::optional<Distribution> find_distribution(std::string_view name);

/// Tells whether the type is supported: floats; int64 for bits and permutations.
bool gives(Distribution distribution, at::ScalarType dtype);

/// A draw: `shape` elements at this place of the global tensor. Permutations: one whole dimension.
struct Draw {
  Distribution distribution = Distribution::kUniform;
  std::vector<std::int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  ElementPlace place;
};

/// Draws identical bits for every device kind, thread count and split. Needs no memory beside the
/// result, except to sort permutations. `what` must support its type (gives).
at::Tensor draw(const Draw& what, const RandomStream& stream, at::Device device);

}  // namespace motley::run
