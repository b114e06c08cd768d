#include "motley/cost/trust/interval.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::cost {
namespace {

/// Returns the value that a new one exceeds with probability at most `tail`: the k-th largest of n,
/// k = floor(tail (n + 1)). If k is 0, the largest value, widened in proportion to what is missing.
double upper_quantile(const std::vector<double>& sorted, double tail) {
  const double rank = tail * (static_cast<double>(sorted.size()) + 1);
  if (rank >= 1 - 1e-9)
    return sorted[sorted.size() - static_cast<std::size_t>(std::floor(rank + 1e-9))];
  return std::max(sorted.back(), 0.0) / rank;
}

}  // namespace

PredictionInterval conformal_interval(double prediction, std::vector<double> residuals,
                                      double coverage) {
  if (residuals.empty()) return {0, prediction, std::numeric_limits<double>::infinity()};
  const double tail = (1 - coverage) / 2;
  std::sort(residuals.begin(), residuals.end());
  const double high = upper_quantile(residuals, tail);
  for (double& residual : residuals) residual = -residual;
  std::reverse(residuals.begin(), residuals.end());
  const double low = -upper_quantile(residuals, tail);
  return {std::max(0.0, prediction * (1 + low)), prediction, prediction * (1 + high)};
}

}  // namespace motley::cost
