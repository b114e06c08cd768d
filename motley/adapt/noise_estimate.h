#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/policy/observation.h"

namespace motley::adapt {

/// One step's |G|^2 without noise, and trace S of a sample's covariance; either may be negative.
struct NoiseMoments {
  double squared_gradient = 0;
  double variance = 0;
};

struct NoisePieces {
  std::vector<std::int64_t> sizes;
  std::vector<double> norms;  ///< squared
  double batch = 0;
};
/// Returns the pieces; nothing for fewer than two (a single device splits its part into
/// micro-batches), or for a norm that is negative or not finite.
std::optional<NoisePieces> find_pieces(const policy::NoiseSeen& seen);

/// Estimates the moments of a step whose gradient is the mean over all samples, sum_i (b_i/B) g_i,
/// in closed form, with least variance for pieces of any size. With L = sum_i (b_i/B) |g_i|^2 over
/// n pieces of B samples in total:
///
///   |G|^2 = (n |g|^2 - L) / (n - 1)        S = B (L - |g|^2) / (n - 1)
///
/// S is the pooled variance within pieces. Under isotropic Gaussian noise in d dimensions its
/// relative deviation is sqrt(2 / (d (n - 1))), and that of |G|^2 with rho = S / (|G|^2 B) is
/// sqrt((4 rho + 2 rho^2 n / (n - 1)) / d). Nothing where `find_pieces` finds none. O(n).
std::optional<NoiseMoments> estimate_moments(const policy::NoiseSeen& seen);
/// The same for another mean L of the squared norms.
NoiseMoments join_pieces(const NoisePieces& pieces, double squared_norm, double mean);

}  // namespace motley::adapt
