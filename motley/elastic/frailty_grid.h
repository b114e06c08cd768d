#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace motley::elastic {

/// A distribution of a positive factor of mean 1, as values with weights that sum to 1.
struct FrailtyGrid {
  std::vector<double> values, weights;
};

/// Returns a log-normal grid with this deviation, within 3.2 deviations. n >= 2.
FrailtyGrid log_normal_grid(double deviation, std::size_t n);

/// Returns a gamma grid of mean 1, log-spaced from e^-6 (lower for small shapes) to e^2.8. n >= 2.
FrailtyGrid gamma_grid(double shape, std::size_t n);

/// Returns log(sum(exp(logs))) without overflow.
double log_sum(std::span<const double> logs);

}  // namespace motley::elastic
