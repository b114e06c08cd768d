#include "motley/cost/step/step_curves.h"

#include <gtest/gtest.h>

namespace motley::cost {
namespace {

// Constant before the first point, linear between points, then the last slope (1 per sample).
TEST(Curve, InterpolatesAndExtrapolates) {
  const Curve curve{{{2, 10}, {4, 16}, {8, 20}}};
  EXPECT_DOUBLE_EQ(curve.at(0), 10);
  EXPECT_DOUBLE_EQ(curve.at(2), 10);
  EXPECT_DOUBLE_EQ(curve.at(3), 13);
  EXPECT_DOUBLE_EQ(curve.at(4), 16);
  EXPECT_DOUBLE_EQ(curve.at(6), 18);
  EXPECT_DOUBLE_EQ(curve.at(10), 22);
}

TEST(Curve, OnePointIsConstant) {
  const Curve curve{{{2, 10}}};
  EXPECT_DOUBLE_EQ(curve.at(1), 10);
  EXPECT_DOUBLE_EQ(curve.at(100), 10);
}

// The header's example: each pass of 4 samples takes 5 s, and the last one's exchange may start
// after 2.5 s of it. 12 samples in three micro-batches give the same.
TEST(StepCurves, OfAStepBehindPassesByTheSamplesOfAll) {
  const Curve pass{{{0, 1}, {4, 5}, {8, 9}}};
  const StepCurves one{{{{{0, 0.5}, {4, 2.5}, {8, 4.5}}}}, pass, {0.1}};
  const StepCurves all = behind_passes(one, pass, 2);
  EXPECT_DOUBLE_EQ(all.end.at(4), 15);
  EXPECT_DOUBLE_EQ(all.ready[0].at(4), 12.5);
  EXPECT_EQ(all.update, one.update);
  const StepCurves by_step = stretch_samples(all, 3);
  EXPECT_DOUBLE_EQ(by_step.end.at(12), 15);
  EXPECT_DOUBLE_EQ(by_step.ready[0].at(12), 12.5);
  EXPECT_EQ(behind_passes(one, pass, 0), one);
  EXPECT_EQ(stretch_samples(one, 1), one);
}

}  // namespace
}  // namespace motley::cost
