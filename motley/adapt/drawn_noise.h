#pragma once

#include <cstdint>
#include <vector>

#include "motley/adapt/noise_estimate.h"
#include "motley/base/random.h"

namespace motley::adapt {

/// Draws squared gradient norms with known moments, as a step would report them, for simulations
/// and tests of estimators. Samples' gradients are Gaussian in `spread.size()` dimensions about G,
/// with variances in the proportions of `spread` that sum to S; G has equal components.
class DrawnNoise {
 public:
  /// Requires at least one number, all > 0.
  DrawnNoise(std::vector<double> spread, std::uint64_t seed);

  /// Draws a step with pieces of these samples (> 0). O(pieces x dimensions).
  policy::NoiseSeen draw(const NoiseMoments& moments, const std::vector<std::int64_t>& sizes);

  /// Draws a standard normal number from uniform ones (Box and Muller 1958).
  double draw_normal();

 private:
  std::vector<double> deviations_;  // of a sample with S = 1
  SplitMix64 random_;
  double kept_ = 0;  // second number of a pair
  bool has_kept_ = false;
};

}  // namespace motley::adapt
