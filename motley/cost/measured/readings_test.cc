#include "motley/cost/measured/readings.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace motley::cost {
namespace {

TEST(Readings, OneRoundIsItself) {
  const MergedReading merged = merge_readings({{0.5, 0.1, 100}});
  EXPECT_DOUBLE_EQ(merged.seconds, 0.5);
  // 1.2533 * 1.4826 * 0.1 / sqrt(100) = 0.01858, and the floor of 0.001.
  EXPECT_NEAR(merged.deviation, std::sqrt(0.018581 * 0.018581 + 1e-6), 1e-5);
}

TEST(Readings, APreciseRoundWeighsMore) {
  // Scatter below the rounds' own variance: tau = 0. Variances 1 : 4, weights 4 : 1: (4 * 1 + 1.02)
  // / 5 = 1.004. Scaling with the time squared and the floor matter less than 0.001 here.
  const MergedReading merged = merge_readings({{1.00, 0.1, 4}, {1.02, 0.2, 4}});
  EXPECT_NEAR(merged.seconds, 1.004, 0.001);
}

TEST(Readings, RoundsThatDisagreeWeighIdentical) {
  // tau^2 is far above the rounds' own variances, so the mean is the plain one.
  const MergedReading merged = merge_readings({{1.0, 0.01, 100}, {1.2, 0.02, 100}});
  EXPECT_NEAR(merged.seconds, 1.1, 0.001);
  // Standard error of a mean of two with a standard deviation of 0.2 / sqrt(2): 0.1.
  EXPECT_NEAR(merged.deviation, 0.1 / 1.1, 0.002);
}

TEST(Readings, AnOutlierIsLeftOut) {
  // Median 1.02; deviations 0.02, 0, 3.98: MAD 0.02, robust deviation 0.0297, limit 0.104.
  const MergedReading merged = merge_readings({{1.00, 0.01, 9}, {1.02, 0.01, 9}, {5.00, 0.01, 9}});
  EXPECT_NEAR(merged.seconds, 1.01, 1e-3);
  EXPECT_EQ(merged.rejected, 1);
  EXPECT_FALSE(merged.has_drifted);
}

TEST(Readings, AgreementByChanceRejectsNothing) {
  // MAD 0: the deviation is taken as 2 %, the limit as 7 %.
  EXPECT_EQ(merge_readings({{1, .01, 9}, {1, .01, 9}, {1.06, .01, 9}}).rejected, 0);
  EXPECT_EQ(merge_readings({{1, .01, 9}, {1, .01, 9}, {1.08, .01, 9}}).rejected, 1);
}

TEST(Readings, DriftKeepsTheNewest) {
  const MergedReading merged =
      merge_readings({{1.00, .01, 9}, {1.01, .01, 9}, {1.50, .01, 9}, {1.52, .01, 9}});
  EXPECT_TRUE(merged.has_drifted);
  EXPECT_NEAR(merged.seconds, 1.51, 1e-3);
  EXPECT_EQ(merged.rejected, 2);
  // One bad round is no drift, nor are two on different sides.
  EXPECT_FALSE(merge_readings({{1, .01, 9}, {1, .01, 9}, {1, .01, 9}, {2, .01, 9}}).has_drifted);
  EXPECT_FALSE(merge_readings({{1, .01, 9}, {1, .01, 9}, {.5, .01, 9}, {2, .01, 9}}).has_drifted);
}

TEST(Readings, ZerosStayZero) { EXPECT_EQ(merge_readings({{0, 0, 3}, {0, 0, 3}}).seconds, 0); }

RC_GTEST_PROP(Readings, TheMergedLiesAmongTheRounds, ()) {
  const auto count = static_cast<std::size_t>(*rc::gen::inRange(1, 7));
  std::vector<Reading> rounds;
  double least = 1e9, most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    rounds.push_back({*rc::gen::inRange(1, 1000) * 1e-4, *rc::gen::inRange(0, 50) * 0.01,
                      *rc::gen::inRange(1, 100)});
    least = std::min(least, rounds.back().seconds);
    most = std::max(most, rounds.back().seconds);
  }
  const MergedReading merged = merge_readings(rounds);
  RC_ASSERT(merged.seconds >= least * (1 - 1e-9) && merged.seconds <= most * (1 + 1e-9));
  RC_ASSERT(merged.deviation > 0);
}

}  // namespace
}  // namespace motley::cost
