#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/adapt/noise_estimate.h"

namespace motley::peers {

/// adapt::estimate_moments with the plain mean of |g_i|^2, as AdaptDL 0.2 does: of unequal pieces S
/// comes out at S (B mean(1/b_i) - 1) / (n - 1).
std::optional<adapt::NoiseMoments> estimate_by_mean(const policy::NoiseSeen& seen);

/// Cannikin's release: each piece with the whole as two batch sizes, joined with weights from its
/// matrices; unbiased, of larger variance than adapt::estimate_moments. Nothing where the matrices
/// have no inverse, either. O(n^3).
std::optional<adapt::NoiseMoments> estimate_by_matrices(const policy::NoiseSeen& seen);

/// Weights that the published matrices give pieces of these sizes. Nothing: no inverse.
struct PublishedWeights {
  std::vector<double> squared_gradient, variance;  ///< a piece each; their sum is 1
};
std::optional<PublishedWeights> find_published_weights(const std::vector<std::int64_t>& sizes);

}  // namespace motley::peers
