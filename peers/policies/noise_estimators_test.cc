#include "peers/policies/noise_estimators.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/adapt/drawn_noise.h"
#include "peers/policies/pass_policy.h"

namespace motley::peers {
namespace {

policy::NoiseSeen seen_of(double whole, std::vector<policy::NoiseSeen::Piece> pieces) {
  return {.step = 0, .squared_norm = whole, .pieces = std::move(pieces)};
}

TEST(NoiseEstimators, PlainMeanJoinsPieces) {
  // The plain mean is 6: |G|^2 = 2 * 3 - 6 = 0, S = 40 (6 - 3) = 120.
  const auto plain = estimate_by_mean(seen_of(3, {{30, 4}, {10, 8}}));
  EXPECT_DOUBLE_EQ(plain->squared_gradient, 0);
  EXPECT_DOUBLE_EQ(plain->variance, 120);
}

TEST(NoiseEstimators, AreThatOfTwoBatchSizesForTwoEqualPieces) {
  // 10 and 20 samples: |G|^2 = (20 * 3 - 10 * 4) / 10 = 2, S = (4 - 3) / (1/10 - 1/20) = 20.
  for (const EstimateNoise estimate : {estimate_by_mean, estimate_by_matrices}) {
    const auto moments = estimate(seen_of(3, {{10, 4}, {10, 4}}));
    EXPECT_NEAR(moments->squared_gradient, 2, 1e-12);
    EXPECT_NEAR(moments->variance, 20, 1e-12);
  }
}

TEST(NoiseEstimators, KnowThePublishedWeights) {
  // Published for these sizes (docs/algorithms.md, "Batch"), to these digits.
  const auto weights = find_published_weights({64, 32, 16, 8, 8});
  const double gradient[] = {-.203, -.287, -.030, .760, .760};
  const double variance[] = {-.005, .040, .161, .402, .402};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(weights->squared_gradient[i], gradient[i], 6e-4);
    EXPECT_NEAR(weights->variance[i], variance[i], 6e-4);
  }
}

/// Mean and relative standard deviation of estimates over drawn steps; |G|^2 is 1.
struct Spread {
  double mean_gradient = 0, mean_variance = 0, rel_gradient = 0, rel_variance = 0;
};
Spread find_spread(const std::vector<std::int64_t>& sizes, std::vector<double> spread, double noise,
                   EstimateNoise estimate, int steps) {
  adapt::DrawnNoise drawn(std::move(spread), 7);
  Spread of;
  double gradients = 0, variances = 0;
  for (int i = 0; i < steps; ++i) {
    const auto each = estimate(drawn.draw({1, noise}, sizes));
    of.mean_gradient += each->squared_gradient / steps;
    of.mean_variance += each->variance / steps;
    gradients += each->squared_gradient * each->squared_gradient / steps;
    variances += each->variance * each->variance / steps;
  }
  of.rel_gradient = std::sqrt(gradients - of.mean_gradient * of.mean_gradient);
  of.rel_variance = std::sqrt(variances - of.mean_variance * of.mean_variance) / noise;
  return of;
}

TEST(NoiseEstimators, AreBiasedOrLessSteady) {
  // Plain mean: S (B mean(1/b) - 1) / (n - 1): for 70, 30 that is 100 (1/70 + 1/30) / 2 - 1
  // = 1.381; |G|^2 + S (n/B - mean(1/b)) / (n - 1) = 1 + 100 (0.02 - 0.02381) = 0.619.
  const Spread two =
      find_spread({70, 30}, std::vector<double>(200, 1.0), 100, estimate_by_mean, 4000);
  EXPECT_NEAR(two.mean_variance / 100, 1.381, 0.01);
  EXPECT_NEAR(two.mean_gradient, 0.619, 0.012);
  // For 64, 32, 16, 8, 8: mean(1/b) = 0.071875, (128 * 0.071875 - 1) / 4 = 2.05.
  const Spread five =
      find_spread({64, 32, 16, 8, 8}, std::vector<double>(200, 1.0), 100, estimate_by_mean, 4000);
  EXPECT_NEAR(five.mean_variance / 100, 2.05, 0.01);
  // The published weights are unbiased, but 0.183 and 0.067 instead of 0.1525 and 0.0500.
  const Spread published = find_spread({64, 32, 16, 8, 8}, std::vector<double>(200, 1.0), 100,
                                       estimate_by_matrices, 4000);
  EXPECT_NEAR(published.mean_variance / 100, 1, 0.005);
  EXPECT_NEAR(published.rel_gradient, 0.183, 0.009);
  EXPECT_NEAR(published.rel_variance, 0.067, 0.004);
}

}  // namespace
}  // namespace motley::peers
