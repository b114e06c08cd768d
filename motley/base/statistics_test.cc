#include "motley/base/statistics.h"

#include <gmock/gmock.h>

namespace motley {
namespace {

using ::testing::ElementsAre;

TEST(Statistics, MediansDifferForEvenNumbers) {
  EXPECT_EQ(median({5, 1, 3}), 3);
  EXPECT_EQ(upper_median({5, 1, 3}), 3);
  EXPECT_EQ(median({4, 1, 2, 9}), 3);
  EXPECT_EQ(upper_median({4, 1, 2, 9}), 4);
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(upper_median({}), 0);
}

TEST(Statistics, ScatterIsMiddleAndWidth) {
  // Middle 4; deviations 3, 0, 1, 6, 0 with middle 1.
  const Scatter scatter = find_scatter({1, 4, 5, 10, 4});
  EXPECT_EQ(scatter.middle, 4);
  EXPECT_EQ(scatter.deviation, 1);
  EXPECT_EQ(scatter.spread(), 0.25);
  EXPECT_EQ(find_scatter({}).spread(), 0);
}

TEST(Statistics, PoolsAdjacentViolators) {
  std::vector<double> values = {3, 1, 2.5};
  make_nondecreasing(values);
  EXPECT_THAT(values, ElementsAre(2, 2, 2.5));
  // 5 > 4 become 4.5, 4.5; with the 0 after them all three become 3.
  values = {5, 4, 0, 3};
  make_nondecreasing(values);
  EXPECT_THAT(values, ElementsAre(3, 3, 3, 3));
  // Weights 2 and 1 of 3 and 0: (2 * 3 + 0) / 3.
  values = {3, 0, 4};
  make_nondecreasing(values, {2, 1, 5});
  EXPECT_THAT(values, ElementsAre(2, 2, 4));
  values = {};
  make_nondecreasing(values);
  EXPECT_TRUE(values.empty());
}

}  // namespace
}  // namespace motley
