#include "motley/cost/fit/gaussian_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::cost {
namespace {

// One value 3 of variance 2 and noise 1, K = 3: c = 1 gives 1/3 * 3 = 1, variance 2 - 1/3.
TEST(GaussianFit, OfOneValue) {
  const GaussianFit fit({3}, {3});
  const Estimate estimate = fit.at({1}, 2);
  EXPECT_DOUBLE_EQ(estimate.value, 1);
  EXPECT_DOUBLE_EQ(estimate.deviation, std::sqrt(5.0 / 3));
}

// K = (2 1; 1 2), inverse (2 -1; -1 2) / 3, y = (3, 0): K^-1 y = (2, -1). c = (1, 1) gives 1; c'
// K^-1 c = 2/3, so the variance falls from 1 to 1/3.
TEST(GaussianFit, OfTwoThatDepend) {
  const GaussianFit fit({2, 1, 1, 2}, {3, 0});
  const Estimate estimate = fit.at({1, 1}, 1);
  EXPECT_DOUBLE_EQ(estimate.value, 1);
  EXPECT_NEAR(estimate.deviation, std::sqrt(1.0 / 3), 1e-15);
}

}  // namespace
}  // namespace motley::cost
