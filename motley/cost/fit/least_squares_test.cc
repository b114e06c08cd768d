#include "motley/cost/fit/least_squares.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace motley::cost {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(LeastSquares, RecoversExactCoefficients) {
  // 2 + 3 x at x = 0, 1, 2.
  const auto fit = fit_relative({{1, 0}, {1, 1}, {1, 2}}, {2, 5, 8});
  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(*fit, ElementsAre(DoubleNear(2, 1e-9), DoubleNear(3, 1e-9)));
}

TEST(LeastSquares, WeighsRelativeErrors) {
  // One constant c for 1 and 3: minimise (c - 1)^2 + (c/3 - 1)^2: c (1 + 1/9) = 1 + 1/3, c = 1.2.
  // Absolute least squares would give 2.
  const auto fit = fit_relative({{1}, {1}}, {1, 3});
  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(*fit, ElementsAre(DoubleNear(1.2, 1e-9)));
}

TEST(LeastSquares, ANegativeCoefficientBecomesZero) {
  // 4 - x at x = 1, 2. Without a slope: minimise (c/3 - 1)^2 + (c/2 - 1)^2:
  // c (1/9 + 1/4) = 1/3 + 1/2, c = 30/13.
  const std::vector<std::vector<double>> rows = {{1, 1}, {1, 2}};
  const auto fit = fit_relative(rows, {3, 2});
  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(*fit, ElementsAre(DoubleNear(30.0 / 13, 1e-9), 0.0));
  const auto free = fit_relative(rows, {3, 2}, {.is_nonnegative = false});
  ASSERT_TRUE(free.has_value());
  EXPECT_THAT(*free, ElementsAre(DoubleNear(4, 1e-9), DoubleNear(-1, 1e-9)));
}

TEST(LeastSquares, AColumnOfZerosGetsZero) {
  const auto fit = fit_relative({{1, 0}, {2, 0}}, {2, 4});
  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(*fit, ElementsAre(DoubleNear(2, 1e-9), 0.0));
}

TEST(LeastSquares, ARidgeSharesBetweenEqualColumns) {
  // Two equal columns: any sum of 2 fits; a penalty gives equal parts, slightly below 1.
  const auto fit = fit_relative({{1, 1}, {2, 2}}, {2, 4}, {.ridge = 1e-6});
  ASSERT_TRUE(fit.has_value());
  EXPECT_THAT(*fit, ElementsAre(DoubleNear(1, 1e-4), DoubleNear(1, 1e-4)));
}

TEST(LeastSquares, RefusesWhatCannotBeFitted) {
  EXPECT_EQ(fit_relative({}, {}).error().message, "a fit of 0 rows to 0 targets");
  EXPECT_EQ(fit_relative({{1}, {1, 2}}, {1, 1}).error().message,
            "row 1: 2 terms, wanted 1; target 1, wanted more than 0");
  EXPECT_EQ(fit_relative({{1}}, {0}).error().message,
            "row 0: 1 terms, wanted 1; target 0, wanted more than 0");
}

double squared_error(const std::vector<std::vector<double>>& rows,
                     const std::vector<double>& targets, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    double predicted = 0;
    for (std::size_t j = 0; j < x.size(); ++j) predicted += rows[i][j] * x[j];
    sum += (predicted / targets[i] - 1) * (predicted / targets[i] - 1);
  }
  return sum;
}

RC_GTEST_PROP(LeastSquares, NoNonnegativeNeighbourIsBetter, ()) {
  const auto columns = static_cast<std::size_t>(*rc::gen::inRange(1, 5));
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (int i = 0; i < 8; ++i) {
    std::vector<double> row;
    for (std::size_t j = 0; j < columns; ++j) row.push_back(*rc::gen::inRange(-20, 100));
    rows.push_back(std::move(row));
    targets.push_back(*rc::gen::inRange(1, 50));
  }
  const auto fit = fit_relative(rows, targets);
  RC_ASSERT(fit.has_value());
  const double best = squared_error(rows, targets, *fit);
  for (std::size_t j = 0; j < columns; ++j) {
    RC_ASSERT((*fit)[j] >= 0);
    for (const double step : {1e-3, -1e-3}) {
      std::vector<double> other = *fit;
      other[j] = std::max(0.0, other[j] + step);
      RC_ASSERT(squared_error(rows, targets, other) >= best - 1e-9);
    }
  }
}

}  // namespace
}  // namespace motley::cost
