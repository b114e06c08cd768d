#include "motley/cost/trust/interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace motley::cost {
namespace {

TEST(PredictionInterval, TakesTheQuantilesOfTheResiduals) {
  // 9 residuals, a tail of 0.1: floor(0.1 * 10) = 1, the largest and the smallest.
  const PredictionInterval nine =
      conformal_interval(2, {-.04, -.03, -.02, -.01, 0, .01, .02, .03, .05});
  EXPECT_DOUBLE_EQ(nine.low, 2 * 0.96);
  EXPECT_DOUBLE_EQ(nine.value, 2);
  EXPECT_DOUBLE_EQ(nine.high, 2 * 1.05);
  // 19 residuals -9 to 9 %: floor(0.1 * 20) = 2, the second from either end.
  std::vector<double> residuals;
  for (int i = -9; i <= 9; ++i) residuals.push_back(i / 100.0);
  const PredictionInterval nineteen = conformal_interval(1, residuals);
  EXPECT_DOUBLE_EQ(nineteen.low, 0.92);
  EXPECT_DOUBLE_EQ(nineteen.high, 1.08);
}

TEST(PredictionInterval, FewResidualsWidenIt) {
  // Two residuals: 0.1 * 3 = 0.3 of one should lie beyond, so the ends are widened by 1 / 0.3.
  const PredictionInterval interval = conformal_interval(1, {-.03, .06});
  EXPECT_DOUBLE_EQ(interval.low, 1 - .03 / .3);
  EXPECT_DOUBLE_EQ(interval.high, 1 + .06 / .3);
}

TEST(PredictionInterval, WithoutResidualsNothingIsKnown) {
  const PredictionInterval interval = conformal_interval(3, {});
  EXPECT_EQ(interval.low, 0);
  EXPECT_TRUE(std::isinf(interval.high));
}

TEST(PredictionInterval, CoversNewCasesOfTheSameKind) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> noise(0, 0.2);
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> residuals;
    for (int i = 0; i < 19; ++i) residuals.push_back(noise(random) - 1);
    const PredictionInterval interval = conformal_interval(1, residuals);
    const double measured = noise(random);
    covered += interval.low <= measured && measured <= interval.high ? 1 : 0;
  }
  // 0.8 +- 4 standard deviations of sqrt(0.8 * 0.2 / 4000) = 0.0063.
  EXPECT_NEAR(static_cast<double>(covered) / kTrials, 0.8, 0.026);
}

}  // namespace
}  // namespace motley::cost
