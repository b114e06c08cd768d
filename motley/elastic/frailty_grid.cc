#include "motley/elastic/frailty_grid.h"

#include <algorithm>
#include <cmath>

namespace motley::elastic {
namespace {

/// Scales weights to a sum of 1 and values to a mean of 1.
FrailtyGrid scaled(FrailtyGrid grid) {
  double weight = 0, mean = 0;
  for (const double each : grid.weights) weight += each;
  for (double& each : grid.weights) each /= weight;
  for (std::size_t i = 0; i < grid.values.size(); ++i) mean += grid.weights[i] * grid.values[i];
  for (double& value : grid.values) value /= mean;
  return grid;
}

double between(double low, double high, std::size_t i, std::size_t n) {
  return low + (high - low) * static_cast<double>(i) / static_cast<double>(n - 1);
}

}  // namespace

FrailtyGrid log_normal_grid(double deviation, std::size_t n) {
  FrailtyGrid grid;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = between(-3.2, 3.2, i, n);
    grid.values.push_back(std::exp(deviation * x));
    grid.weights.push_back(std::exp(-x * x / 2));
  }
  return scaled(std::move(grid));
}

FrailtyGrid gamma_grid(double shape, std::size_t n) {
  FrailtyGrid grid;
  const double low = -std::max(6.0, 4 / shape);
  for (std::size_t i = 0; i < n; ++i) {
    const double y = between(low, 2.8, i, n);
    grid.values.push_back(std::exp(y));
    grid.weights.push_back(std::exp(shape * (y - std::exp(y))));
  }
  return scaled(std::move(grid));
}

double log_sum(std::span<const double> logs) {
  const double most = *std::max_element(logs.begin(), logs.end());
  double sum = 0;
  for (const double each : logs) sum += std::exp(each - most);
  return most + std::log(sum);
}

}  // namespace motley::elastic
