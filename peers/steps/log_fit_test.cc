#include "peers/steps/log_fit.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::peers {
namespace {

TEST(LogFit, PriorAndTargetPullByTheirSpreads) {
  const Predictor same = [](const std::vector<double>& x) { return x; };
  // Weights 1/0.1^2 each: the geometric mean of 4 and 1.
  auto fit = fit_log_parameters(same, {4}, {{1, 0.1}}, 0.1);
  ASSERT_TRUE(fit);
  EXPECT_NEAR((*fit)[0], 2, 1e-6);
  // A prior with spread 0.2 weighs a quarter: (log 4 + 0.25 log 1) / 1.25 = 0.8 log 4.
  fit = fit_log_parameters(same, {4}, {{1, 0.2}}, 0.1);
  ASSERT_TRUE(fit);
  EXPECT_NEAR((*fit)[0], std::pow(4.0, 0.8), 1e-6);
}

TEST(LogFit, RecoversALineAndALargerOfTwo) {
  // max(2, 0.5 n) + 1 for n = 1 .. 10, with priors far off and weak.
  const auto model = [](const std::vector<double>& x) {
    std::vector<double> y;
    for (int n = 1; n <= 10; ++n) y.push_back(std::max(x[0], x[1] * n) + x[2]);
    return y;
  };
  const auto fit = fit_log_parameters(model, model({2, 0.5, 1}), {{1, 9}, {1, 9}, {3, 9}}, 0.01);
  ASSERT_TRUE(fit);
  EXPECT_NEAR((*fit)[0], 2, 1e-3);
  EXPECT_NEAR((*fit)[1], 0.5, 1e-3);
  EXPECT_NEAR((*fit)[2], 1, 1e-3);
}

TEST(LogFit, AParameterWithoutEvidenceKeepsItsPrior) {
  const Predictor first = [](const std::vector<double>& x) { return std::vector{x[0]}; };
  const auto fit = fit_log_parameters(first, {3}, {{1, 9}, {7, 0.5}}, 0.01);
  ASSERT_TRUE(fit);
  EXPECT_NEAR((*fit)[0], 3, 1e-3);
  EXPECT_NEAR((*fit)[1], 7, 1e-9);
}

TEST(LogFit, RefusesTargetsThatAreNotPositive) {
  const Predictor same = [](const std::vector<double>& x) { return x; };
  EXPECT_EQ(fit_log_parameters(same, {}, {}, 0.1).error().message, "a fit without targets");
  EXPECT_EQ(fit_log_parameters(same, {1, 0}, {{1, 1}, {1, 1}}, 0.1).error().message,
            "target 1 is 0, wanted more than 0");
}

}  // namespace
}  // namespace motley::peers
