#include "motley/cost/step/step_ramp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "motley/cost/step/closed_form.h"
#include "motley/testing/random_curves.h"

namespace motley::cost {
namespace {

constexpr std::int64_t kCurveEnd = 12;

/// Draws curves with or without common points.
StepCurves drawn_curves(SplitMix64& random, std::size_t exchanges, bool are_shared) {
  StepCurves curves =
      random_step_curves(random, {kCurveEnd, exchanges, 0.2 + 2 * random.uniform(), false});
  if (!are_shared) return curves;
  for (Curve& ready : curves.ready) {
    Curve shared;
    for (const auto& [samples, seconds] : curves.end.points)
      shared.points.emplace_back(samples, ready.at(samples));
    ready = shared;
  }
  return curves;
}

// Samples before, between, at and beyond the points; those seconds and slightly more.
TEST(StepRamp, IsTheStepModelToTheBit) {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    SplitMix64 random(seed);
    const std::size_t exchanges = random.below(5);
    const StepCurves curves = drawn_curves(random, exchanges, seed % 4 != 0);
    std::vector<double> tails;
    for (std::size_t k = 0; k < exchanges; ++k) tails.push_back(8 * random.uniform());
    std::sort(tails.rbegin(), tails.rend());
    const StepRamp ramp(curves, tails, {3 * kCurveEnd, share_points(curves)});
    for (double samples = 0.25; samples <= 3 * kCurveEnd; samples += 0.25) {
      const double seconds = step_seconds(curves, tails, samples);
      ASSERT_EQ(ramp.at(samples), seconds) << "seed " << seed << ", " << samples;
      const double most = largest_samples(curves, tails, seconds + 0.1);
      if (std::isfinite(most) && most <= 3 * kCurveEnd) {
        ASSERT_NEAR(ramp.largest_samples(seconds + 0.1), most, 1e-9 * most) << "seed " << seed;
      }
    }
    EXPECT_EQ(ramp.largest_samples(-1), -std::numeric_limits<double>::infinity());
  }
}

TEST(StepRamp, OnePointGoesOnForEver) {
  const StepCurves curves{{Curve{{{1, 2}}}}, Curve{{{1, 3}}}, {0.5}};
  const std::vector<double> tails = {4};
  const StepRamp ramp(curves, tails, {10, true});
  EXPECT_EQ(ramp.at(7), 6);  // 2 + 4, against 3 + 0.5
  EXPECT_EQ(ramp.largest_samples(6), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace motley::cost
