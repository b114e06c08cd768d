#include "motley/cost/operators/pace.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::cost {
namespace {

// ln 30 = (ln 10 + ln 90) / 2, as 30^2 = 10 * 90.
TEST(Pace, IsLinearInTheLogarithmOfTheCompute) {
  const Pace pace({{Seconds(0.090), 0.2}, {Seconds(0.010), 0.4}});
  EXPECT_DOUBLE_EQ(pace.at(Seconds(0.010)), 0.4);
  EXPECT_NEAR(pace.at(Seconds(0.030)), 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(pace.at(Seconds(0.090)), 0.2);
}

TEST(Pace, IsConstantOutside) {
  const Pace pace({{Seconds(0.010), 0.4}, {Seconds(0.090), 0.2}});
  EXPECT_DOUBLE_EQ(pace.at(Seconds(0)), 0.4);
  EXPECT_DOUBLE_EQ(pace.at(Seconds(1)), 0.2);
  EXPECT_DOUBLE_EQ(pace.fastest(), 0.4);
  EXPECT_DOUBLE_EQ(Pace(0.7).at(Seconds(3)), 0.7);
}

TEST(Pace, MayBeLimited) {
  const Pace pace = Pace({{Seconds(0.010), 0.4}, {Seconds(0.090), 0.2}}).at_most(0.3);
  EXPECT_DOUBLE_EQ(pace.at(Seconds(0.010)), 0.3);
  EXPECT_DOUBLE_EQ(pace.at(Seconds(0.090)), 0.2);
}

TEST(Pace, TakesTheFirstOfEqualAmounts) {
  const Pace pace({{Seconds(1), 0.4}, {Seconds(1), 0.2}});
  EXPECT_TRUE(pace.is_constant());
  EXPECT_DOUBLE_EQ(pace.at(Seconds(1)), 0.4);
}

}  // namespace
}  // namespace motley::cost
