#include "peers/steps/drag.h"

#include <gmock/gmock.h>

#include <cmath>

namespace motley::peers {
namespace {

TEST(Drag, OfNoMeasurementIsOne) { EXPECT_DOUBLE_EQ(estimate_drag({}), 1.0); }

TEST(Drag, CountsOneMoreMemberAtOne) {
  // The geometric mean of 2 and 0.5 is 1, with or without the extra member.
  EXPECT_DOUBLE_EQ(estimate_drag({2.0, 0.5}), 1.0);
  // One ratio of 4 and the assumed 1: sqrt(4 * 1) = 2.
  EXPECT_DOUBLE_EQ(estimate_drag({4.0}), 2.0);
  // 1.21^(2/3): log 1.21 = 0.190620, times 2/3 = 0.127080, exp = 1.135508.
  EXPECT_NEAR(estimate_drag({1.21, 1.21}), 1.135508, 1e-6);
}

TEST(Drag, FitWithoutGroupsIsTheRelativeFit) {
  // 2 + 3 x at x = 0, 1, 2.
  const auto fit = fit_with_drags({{1, 0}, {1, 1}, {1, 2}}, {{2}, {5}, {8}});
  ASSERT_TRUE(fit.has_value());
  EXPECT_NEAR(fit->coefficients[0], 2, 1e-9);
  EXPECT_NEAR(fit->coefficients[1], 3, 1e-9);
  EXPECT_DOUBLE_EQ(fit->drag(-1), 1.0);
  EXPECT_DOUBLE_EQ(fit->drag(3), 1.0);
}

TEST(Drag, SlowGroupDoesNotBendTheSlope) {
  // 1 + x on two hosts: x = 1, 3 at drag 1 (2, 4) and x = 2, 8 at drag 1.2 (3.6, 10.8). A fixed
  // point has pace_a/pace_b between 1.2 (the truth) and 1. All large x are on the slow host, so a
  // fit without drags sees a steeper line: 10.8 / 4 instead of 9 / 4 from x = 3 to 8.
  const std::vector<std::vector<double>> rows = {{1, 1}, {1, 3}, {1, 2}, {1, 8}};
  const auto paced = fit_with_drags(rows, {{2, 0}, {4, 0}, {3.6, 1}, {10.8, 1}});
  const auto plain = fit_with_drags(rows, {{2}, {4}, {3.6}, {10.8}});
  ASSERT_TRUE(paced.has_value());
  ASSERT_TRUE(plain.has_value());
  const auto growth = [](const GroupedFit& fit) {
    return (fit.coefficients[0] + 8 * fit.coefficients[1]) /
           (fit.coefficients[0] + 3 * fit.coefficients[1]);
  };
  EXPECT_LT(std::abs(growth(*paced) - 9.0 / 4), std::abs(growth(*plain) - 9.0 / 4));
  EXPECT_GT(paced->drag(1), paced->drag(0));
  EXPECT_LT(paced->drag(1) / paced->drag(0), 1.2 + 1e-9);
}

TEST(Drag, PassesOnTheFaultOfTheFit) {
  const auto fit = fit_with_drags({{1}}, {{0}});
  ASSERT_FALSE(fit.has_value());
  EXPECT_EQ(fit.error().code, "cost.fit");
}

}  // namespace
}  // namespace motley::peers
