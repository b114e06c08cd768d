#include "motley/adapt/first_steps.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/base/json.h"

namespace motley::adapt {
namespace {

// 5 % count as one reading: with its own uncertainty 0.05 sqrt(2).
TEST(FirstSteps, MayBeLongerUntilSomeAreSeen) {
  const FirstSteps none;
  EXPECT_EQ(none.mean(), 0);
  EXPECT_NEAR(none.deviation(), 0.05 * std::sqrt(2), 1e-12);
}

// Mean 0.6 / 3 = 0.2; squares 0.18 - 2 * 0.04 and 0.0025 + 0.04: 0.1425 / 3, times 4 / 3.
TEST(FirstSteps, AreLearned) {
  FirstSteps steps, pooled;
  steps.observe(0.3, 0);
  pooled.add(steps);
  pooled.add(steps);
  EXPECT_NEAR(pooled.mean(), 0.2, 1e-12);
  EXPECT_NEAR(pooled.deviation(), std::sqrt(0.0475 * 4 / 3), 1e-12);
}

TEST(FirstSteps, TheSpreadOfStepsIsNoneOfTheirs) {
  FirstSteps steps;
  for (int i = 0; i < 200; ++i) steps.observe(i % 2 == 0 ? 0.07 : -0.07, 0.05);
  EXPECT_NEAR(steps.mean(), 0, 1e-3);
  EXPECT_LT(steps.deviation(), 0.01);
}

TEST(FirstSteps, GoOnFromTheirState) {
  FirstSteps steps, other;
  steps.observe(0.2, 0.03);
  ASSERT_TRUE(other.restore(steps.state(), "x"));
  EXPECT_EQ(other.state(), steps.state());
  EXPECT_EQ(other.deviation(), steps.deviation());
  Json state = steps.state();
  state["count"] = -3;
  EXPECT_EQ(other.restore(state, "x").error().message, "x: wanted what first steps can take");
}

}  // namespace
}  // namespace motley::adapt
