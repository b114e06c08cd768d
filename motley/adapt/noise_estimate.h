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

/// A step's pieces with samples.
struct NoisePieces {
  std::vector<std::int64_t> sizes;
  std::vector<double> norms;  ///< squared
  double batch = 0;
};
/// Nothing: fewer than two pieces (a single device splits its part into micro-batches), or a norm
/// that is not finite or negative.
std::optional<NoisePieces> find_pieces(const policy::NoiseSeen& seen);

/// Moments of a step whose gradient is the mean over all samples, sum_i (b_i/B) g_i, in closed
/// form, of least variance for pieces of any sizes: with L = sum_i (b_i/B) |g_i|^2 over n pieces of
/// together B samples
///
///   |G|^2 = (n |g|^2 - L) / (n - 1)        S = B (L - |g|^2) / (n - 1)
///
/// S is the pooled variance within pieces, so its relative deviation under isotropic Gaussian noise
/// in d dimensions is sqrt(2 / (d (n - 1))), that of |G|^2 with rho = S / (|G|^2 B)
/// sqrt((4 rho + 2 rho^2 n / (n - 1)) / d). Nothing where `find_pieces` finds none. O(n).
std::optional<NoiseMoments> estimate_moments(const policy::NoiseSeen& seen);
/// The same of another mean L of the squared norms.
NoiseMoments join_pieces(const NoisePieces& pieces, double squared_norm, double mean);

}  // namespace motley::adapt
