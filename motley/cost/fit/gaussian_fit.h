#pragma once

#include <memory>
#include <vector>

namespace motley::cost {

/// A value and its uncertainty.
struct Estimate {
  double value = 0;
  double deviation = 0;  ///< standard deviation
};

/// The best linear estimate of a random variable from others with known covariances (simple
/// kriging; Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 2.23 and 2.24):
///
///   value = c' K^-1 y      variance = v - c' K^-1 c
class GaussianFit {
 public:
  /// `covariances` K of the measurements including noise: n * n, row by row, positive definite.
  /// `values` y: n measurements minus their expected values. O(n^3).
  GaussianFit(const std::vector<double>& covariances, const std::vector<double>& values);
  ~GaussianFit();
  GaussianFit(const GaussianFit&) = delete;
  GaussianFit& operator=(const GaussianFit&) = delete;

  /// Estimates a variable with variance v and covariances c with the measurements. O(n^2).
  Estimate at(const std::vector<double>& covariances, double variance) const;

 private:
  struct Solved;
  std::unique_ptr<Solved> solved_;
};

}  // namespace motley::cost
