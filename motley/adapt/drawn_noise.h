#pragma once

#include <cstdint>
#include <vector>

#include "motley/adapt/noise_estimate.h"
#include "motley/base/random.h"

namespace motley::adapt {

/// Squared norms of gradients with known moments, as a step would report them: for simulations and
/// for tests of estimators. Samples' gradients are Gaussian in `spread.size()` dimensions about G,
/// with variances in the proportions of `spread` that sum to S; G points equally into all
/// dimensions.
class DrawnNoise {
 public:
  /// Requires numbers > 0, at least one.
  DrawnNoise(std::vector<double> spread, std::uint64_t seed);

  /// Norms of a step with pieces of these samples (> 0) each. O(pieces x dimensions).
  policy::NoiseSeen draw(const NoiseMoments& moments, const std::vector<std::int64_t>& sizes);

  /// Uniform numbers to normal ones (Box and Muller 1958), mean 0 and variance 1.
  double draw_normal();

 private:
  std::vector<double> deviations_;  // of a sample with S = 1
  SplitMix64 random_;
  double kept_ = 0;  // the second number of a pair
  bool has_kept_ = false;
};

}  // namespace motley::adapt
