#pragma once

#include <memory>
#include <vector>

namespace motley::cost {

/// A value and how far off it may be.
struct Estimate {
  double value = 0;
  double deviation = 0;  ///< standard deviation
};

/// The best linear estimate of something that is drawn with known covariances, from others of the
/// kind (simple kriging; Rasmussen and Williams, Gaussian Processes for Machine Learning, eq. 2.23
/// and 2.24):
///
///   value = c' K^-1 y      variance = v - c' K^-1 c
class GaussianFit {
 public:
  /// `covariances` K of what was measured, its noise included, row by row: n * n. Positive
  /// definite. `values` y: n, less what they were expected to be. O(n^3).
  GaussianFit(const std::vector<double>& covariances, const std::vector<double>& values);
  ~GaussianFit();
  GaussianFit(const GaussianFit&) = delete;
  GaussianFit& operator=(const GaussianFit&) = delete;

  /// Of something with variance v and covariances c with what was measured. O(n^2).
  Estimate at(const std::vector<double>& covariances, double variance) const;

 private:
  struct Solved;
  std::unique_ptr<Solved> solved_;
};

}  // namespace motley::cost
