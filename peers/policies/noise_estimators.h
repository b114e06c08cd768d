#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/adapt/noise_estimate.h"

namespace motley::peers {

/// Estimates as adapt::estimate_moments with the plain mean of |g_i|^2, like AdaptDL 0.2: with
/// unequal pieces S becomes S (B mean(1/b_i) - 1) / (n - 1).
std::optional<adapt::NoiseMoments> estimate_by_mean(const policy::NoiseSeen& seen);

/// Estimates as Cannikin's release: each piece and the whole, joined by its matrices' weights;
/// unbiased, of larger variance than adapt::estimate_moments. Nothing if singular. O(n^3).
std::optional<adapt::NoiseMoments> estimate_by_matrices(const policy::NoiseSeen& seen);

/// The published matrices' weights for pieces of these sizes; nothing: no inverse.
struct PublishedWeights {
  std::vector<double> squared_gradient, variance;  ///< one per piece; they sum to 1
};
std::optional<PublishedWeights> find_published_weights(const std::vector<std::int64_t>& sizes);

}  // namespace motley::peers
