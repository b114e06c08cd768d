#include "motley/cost/step/step_curves.h"

#include <gtest/gtest.h>

namespace motley::cost {
namespace {

// Constant before the first point, linear between points, last slope (1 per sample) behind.
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

}  // namespace
}  // namespace motley::cost
