#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace motley::elastic {

/// A distribution of a positive factor of mean 1, as values with weights that sum to 1.
struct FrailtyGrid {
  std::vector<double> values, weights;
};

/// Logarithm normal with this deviation, within 3.2 deviations. n >= 2.
FrailtyGrid log_normal_grid(double deviation, std::size_t n);

/// Gamma of this shape and mean 1, between e^-6 (for small shapes further down) and e^2.8: values
/// evenly spaced in their logarithms. n >= 2.
FrailtyGrid gamma_grid(double shape, std::size_t n);

/// log(sum(exp(logs))), without overflow.
double log_sum(std::span<const double> logs);

}  // namespace motley::elastic
