#include "motley/adapt/noise_estimate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "motley/adapt/drawn_noise.h"

namespace motley::adapt {
namespace {

policy::NoiseSeen seen_of(double whole, std::vector<policy::NoiseSeen::Piece> pieces) {
  return {.step = 0, .squared_norm = whole, .pieces = std::move(pieces)};
}

TEST(NoiseEstimate, JoinsPiecesInClosedForm) {
  // L = 0.75 * 4 + 0.25 * 8 = 5; |G|^2 = (2 * 3 - 5) / 1 = 1; S = 40 (5 - 3) / 1 = 80.
  const auto moments = estimate_moments(seen_of(3, {{30, 4}, {10, 8}}));
  EXPECT_DOUBLE_EQ(moments->squared_gradient, 1);
  EXPECT_DOUBLE_EQ(moments->variance, 80);
}

TEST(NoiseEstimate, IsThatOfTwoBatchSizesForTwoEqualPieces) {
  // 10 and 20 samples: |G|^2 = (20 * 3 - 10 * 4) / 10 = 2, S = (4 - 3) / (1/10 - 1/20) = 20.
  const auto moments = estimate_moments(seen_of(3, {{10, 4}, {10, 4}}));
  EXPECT_NEAR(moments->squared_gradient, 2, 1e-12);
  EXPECT_NEAR(moments->variance, 20, 1e-12);
}

TEST(NoiseEstimate, SaysNothingOfASinglePieceOrOfWhatIsNotANorm) {
  const double nan = std::nan(""), endless = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(estimate_moments(seen_of(3, {})));
  EXPECT_FALSE(estimate_moments(seen_of(3, {{10, 4}})));
  EXPECT_FALSE(estimate_moments(seen_of(3, {{10, 4}, {0, 7}})));
  EXPECT_FALSE(estimate_moments(seen_of(nan, {{10, 4}, {10, 4}})));
  EXPECT_FALSE(estimate_moments(seen_of(3, {{10, 4}, {10, endless}})));
  EXPECT_FALSE(estimate_moments(seen_of(3, {{10, 4}, {10, -1}})));
  EXPECT_TRUE(estimate_moments(seen_of(3, {{10, 4}, {10, 4}, {0, nan}})));
}

/// Mean and relative standard deviation of estimates over drawn steps; |G|^2 is 1.
struct Spread {
  double mean_gradient = 0, mean_variance = 0, rel_gradient = 0, rel_variance = 0;
};
Spread find_spread(const std::vector<std::int64_t>& sizes, std::vector<double> spread, double noise,
                   int steps) {
  DrawnNoise drawn(std::move(spread), 7);
  Spread of;
  double gradients = 0, variances = 0;
  for (int i = 0; i < steps; ++i) {
    const auto each = estimate_moments(drawn.draw({1, noise}, sizes));
    of.mean_gradient += each->squared_gradient / steps;
    of.mean_variance += each->variance / steps;
    gradients += each->squared_gradient * each->squared_gradient / steps;
    variances += each->variance * each->variance / steps;
  }
  of.rel_gradient = std::sqrt(gradients - of.mean_gradient * of.mean_gradient);
  of.rel_variance = std::sqrt(variances - of.mean_variance * of.mean_variance) / noise;
  return of;
}

// Isotropic in d dimensions: relative deviation of S sqrt(2 / (d (n - 1))), of |G|^2
// sqrt((4 rho + 2 rho^2 n / (n - 1)) / d) with rho = noise / B.
TEST(NoiseEstimate, IsUnbiasedAndAsSteadyAsTheFormulaSays) {
  struct Case {
    std::vector<std::int64_t> sizes;
    std::size_t d;
    double noise;
  };
  const Case cases[] = {{{70, 30}, 200, 100},
                        {{64, 32, 16, 8, 8}, 200, 100},
                        {{64, 32, 16, 8, 8}, 200, 5000},
                        {{90, 10}, 200, 100}};
  constexpr int kSteps = 4000;
  for (const Case& each : cases) {
    const Spread of = find_spread(each.sizes, std::vector<double>(each.d, 1.0), each.noise, kSteps);
    double batch = 0;
    for (const std::int64_t size : each.sizes) batch += static_cast<double>(size);
    const double n = static_cast<double>(each.sizes.size()), d = static_cast<double>(each.d);
    const double rho = each.noise / batch;
    const double exact_variance = std::sqrt(2 / (d * (n - 1)));
    const double exact_gradient = std::sqrt((4 * rho + 2 * rho * rho * n / (n - 1)) / d);
    EXPECT_NEAR(of.rel_variance / exact_variance, 1, 0.05);
    EXPECT_NEAR(of.rel_gradient / exact_gradient, 1, 0.05);
    // Unbiased within 3.5 standard errors.
    EXPECT_NEAR(of.mean_variance / each.noise, 1, 3.5 * exact_variance / std::sqrt(kSteps));
    EXPECT_NEAR(of.mean_gradient, 1, 3.5 * exact_gradient / std::sqrt(kSteps));
  }
}

TEST(NoiseEstimate, IsUnbiasedWhereNoiseIsStrongerInSomeDirections) {
  // Variances 1, 1/2, .. 1/200 of tr = H(200): tr(Sigma^2) / tr(Sigma)^2 = 1.6399 / 5.8780^2
  // = 0.04746, so the relative deviation of S is sqrt(2 * 0.04746 / 4) = 0.1540.
  std::vector<double> spread;
  for (int i = 1; i <= 200; ++i) spread.push_back(1.0 / i);
  const Spread of = find_spread({64, 32, 16, 8, 8}, spread, 100, 4000);
  EXPECT_NEAR(of.rel_variance / 0.1540, 1, 0.07);
  EXPECT_NEAR(of.mean_variance / 100, 1, 3.5 * 0.1540 / std::sqrt(4000.0));
}

}  // namespace
}  // namespace motley::adapt
