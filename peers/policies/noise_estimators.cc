#include "peers/policies/noise_estimators.h"

#include <cmath>
#include <cstddef>
#include <utility>

namespace motley::peers {
namespace {

using Equations = std::vector<std::vector<double>>;

/// Solves rows x = 1 and returns x / sum(x).
std::optional<std::vector<double>> solve_for_ones(Equations rows) {
  const std::size_t n = rows.size();
  std::vector<double> right(n, 1);
  for (std::size_t column = 0; column < n; ++column) {
    std::size_t pivot = column;
    for (std::size_t row = column + 1; row < n; ++row)
      if (std::abs(rows[row][column]) > std::abs(rows[pivot][column])) pivot = row;
    std::swap(rows[column], rows[pivot]);
    std::swap(right[column], right[pivot]);
    for (std::size_t row = column + 1; row < n; ++row) {
      const double factor = rows[row][column] / rows[column][column];
      for (std::size_t i = column; i < n; ++i) rows[row][i] -= factor * rows[column][i];
      right[row] -= factor * right[column];
    }
  }
  double sum = 0;
  for (std::size_t row = n; row-- > 0;) {
    for (std::size_t i = row + 1; i < n; ++i) right[row] -= rows[row][i] * right[i];
    right[row] /= rows[row][row];
    sum += right[row];
  }
  for (double& x : right) x /= sum;
  for (const double x : right)
    if (!std::isfinite(x)) return std::nullopt;
  return right;
}

}  // namespace

std::optional<PublishedWeights> find_published_weights(const std::vector<std::int64_t>& sizes) {
  const std::size_t n = sizes.size();
  double batch = 0;
  for (const std::int64_t size : sizes) batch += static_cast<double>(size);
  Equations gradient(n, std::vector<double>(n)), variance = gradient;
  for (std::size_t i = 0; i < n; ++i) {
    const double a = static_cast<double>(sizes[i]), rest = batch - a;
    for (std::size_t j = 0; j < n; ++j) {
      const double b = static_cast<double>(sizes[j]), other = batch - b;
      gradient[i][j] = i == j ? (batch + 2 * a) / (batch * rest)
                              : (batch * batch - a * a - b * b) / (batch * rest * other);
      variance[i][j] = i == j ? batch * a / rest : a * b * (batch - a - b) / (rest * other);
    }
  }
  auto of_gradient = solve_for_ones(std::move(gradient));
  auto of_variance = solve_for_ones(std::move(variance));
  if (!of_gradient || !of_variance) return std::nullopt;
  return PublishedWeights{std::move(*of_gradient), std::move(*of_variance)};
}

std::optional<adapt::NoiseMoments> estimate_by_mean(const policy::NoiseSeen& seen) {
  const std::optional<adapt::NoisePieces> pieces = adapt::find_pieces(seen);
  if (!pieces) return std::nullopt;
  const double n = static_cast<double>(pieces->norms.size());
  double mean = 0;
  for (const double norm : pieces->norms) mean += 1 / n * norm;
  return adapt::join_pieces(*pieces, seen.squared_norm, mean);
}

std::optional<adapt::NoiseMoments> estimate_by_matrices(const policy::NoiseSeen& seen) {
  const std::optional<adapt::NoisePieces> pieces = adapt::find_pieces(seen);
  if (!pieces) return std::nullopt;
  const std::optional<PublishedWeights> weights = find_published_weights(pieces->sizes);
  if (!weights) return std::nullopt;
  adapt::NoiseMoments joined;
  for (std::size_t i = 0; i < pieces->sizes.size(); ++i) {
    const double b = static_cast<double>(pieces->sizes[i]), rest = pieces->batch - b;
    joined.squared_gradient += weights->squared_gradient[i] *
                               (pieces->batch * seen.squared_norm - b * pieces->norms[i]) / rest;
    joined.variance +=
        weights->variance[i] * (pieces->norms[i] - seen.squared_norm) * b * pieces->batch / rest;
  }
  return joined;
}

}  // namespace motley::peers
