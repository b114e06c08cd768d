#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/policy/observation.h"

namespace motley::adapt {

/// What one step says of the gradient: its squared norm |G|^2 without noise, and the trace S of a
/// single sample's covariance. Estimates of them: either may be negative.
struct NoiseMoments {
  double squared_gradient = 0;
  double variance = 0;
};

enum class NoiseEstimator {
  /// Closed form, of least variance for pieces of any sizes: with L = sum_i (b_i/B) |g_i|^2 over n
  /// pieces of together B samples
  ///
  ///   |G|^2 = (n |g|^2 - L) / (n - 1)        S = B (L - |g|^2) / (n - 1)
  ///
  /// S is the pooled variance within pieces, so its relative deviation under isotropic Gaussian
  /// noise in d dimensions is sqrt(2 / (d (n - 1))), that of |G|^2 with rho = S / (|G|^2 B)
  /// sqrt((4 rho + 2 rho^2 n / (n - 1)) / d). O(n).
  kPooled,
  /// The same with the plain mean of |g_i|^2, as AdaptDL 0.2 does. To compare with: of unequal
  /// pieces S comes out at S (B mean(1/b_i) - 1) / (n - 1).
  kPlainMean,
  /// Cannikin's release: each piece with the whole as two batch sizes, joined with weights from its
  /// matrices. To compare with: unbiased, of larger variance than pooled. O(n^3).
  kPublished,
};

/// Moments of a step whose gradient is the mean over all samples, sum_i (b_i/B) g_i. Pieces without
/// samples are passed over. Nothing: fewer than two pieces (a single device splits its part into
/// micro-batches), a norm that is not finite or negative, or matrices without inverse.
std::optional<NoiseMoments> estimate_moments(const policy::NoiseSeen& seen,
                                             NoiseEstimator estimator = NoiseEstimator::kPooled);

/// Weights that the published matrices give pieces of these sizes. Nothing: no inverse.
struct PublishedWeights {
  std::vector<double> squared_gradient, variance;  ///< a piece each; their sum is 1
};
std::optional<PublishedWeights> find_published_weights(const std::vector<std::int64_t>& sizes);

}  // namespace motley::adapt
