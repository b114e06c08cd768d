#include "motley/search/spmd/mean_time.h"

#include <gtest/gtest.h>

#include <limits>

namespace motley::search {
namespace {

// Two devices of total weight 1/2, 4 s each for the whole, nothing fixed, no launch. The mean of a
// split operator is 1/2 of 4 s times the parts, which sum to 1, over two devices: 1/2 * 4 / 2.
TEST(MeanTime, SplitsWholeWorkWhereItWeighsLeast) {
  MeanTime mean;
  mean.add(2, 0.5, {.whole = 4});
  mean.add(1, 0.5, {.whole = 8});
  EXPECT_DOUBLE_EQ(mean.whole(), 0.5 * 4 + 0.5 * 8);
  // All goes to the pair, at 0.25 per device: 4 s * 0.25; on the other it would weigh 4.
  EXPECT_DOUBLE_EQ(mean.split(), 1);
}

// Both pay a launch of 1 s, within which each does a quarter of the 4 s. So half is free and the
// other half adds 1/2 * 4 * 1/2.
TEST(MeanTime, WithinALaunchPartsAreFree) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 4, .least = 1});
  mean.add(1, 0.5, {.whole = 4, .least = 1});
  EXPECT_DOUBLE_EQ(mean.split(), 1 + 0.5 * 4 * 0.5);
}

// 1 s of 4 is for operands that each device has whole: both pay it, and 3 s are split.
TEST(MeanTime, WhatIsFixedIsPaidByAll) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 4, .fixed = 1});
  mean.add(1, 0.5, {.whole = 4, .fixed = 1});
  EXPECT_DOUBLE_EQ(mean.split(), 1 + 0.5 * 3);
}

// Work shorter than a launch is free.
TEST(MeanTime, ALaunchIsNoLongerThanTheWhole) {
  MeanTime mean;
  mean.add(1, 1, {.whole = 2, .least = 5});
  EXPECT_DOUBLE_EQ(mean.whole(), 2);
  EXPECT_DOUBLE_EQ(mean.split(), 2);
}

// The first takes at most half, at 1/2 * 4 s; the rest goes to the other, at 1/2 * 8 s.
TEST(MeanTime, PartsStayWithinTheirRanges) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 4}, {0, 0.5});
  mean.add(1, 0.5, {.whole = 8});
  EXPECT_DOUBLE_EQ(mean.split(), 0.5 * 0.5 * 4 + 0.5 * 0.5 * 8);
  MeanTime too_little;
  too_little.add(1, 0.5, {.whole = 4}, {0, 0.5});
  too_little.add(1, 0.5, {.whole = 8}, {0, 0.25});
  EXPECT_EQ(too_little.split(), std::numeric_limits<double>::infinity());
}

// Of 3 rows the first has exactly one; the fuller of the other two devices has 1, at 8 s each.
TEST(MeanTime, WhereOneKindIsLeftItsPartsAreWholeNumbers) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 3}, {1.0 / 3, 1.0 / 3});
  mean.add(2, 0.5, {.whole = 9});
  EXPECT_DOUBLE_EQ(mean.split(), 0.5 * 1 + 0.5 * 3);
  EXPECT_DOUBLE_EQ(mean.split(3), 0.5 * 1 + 0.5 * 3);
  MeanTime four;  // of 4 rows the others share 3: the fuller has 2
  four.add(1, 0.5, {.whole = 4}, {0.25, 0.25});
  four.add(2, 0.5, {.whole = 8});
  EXPECT_DOUBLE_EQ(four.split(), 0.5 * 1 + 0.5 * 3);
  EXPECT_DOUBLE_EQ(four.split(4), 0.5 * 1 + 0.5 * 4);
}

// Prices of 1 and -1: all goes to the slower second; a saving is used even within a launch.
TEST(MeanTime, PricesMovePartsAbout) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 4}, {}, 1);
  mean.add(1, 0.5, {.whole = 5}, {}, -1);
  EXPECT_DOUBLE_EQ(mean.split(), 0.5 * 5 - 1);
  MeanTime launches;
  launches.add(1, 0.5, {.whole = 4, .least = 2}, {}, 1);
  launches.add(1, 0.5, {.whole = 4, .least = 2}, {}, -1);
  // 1 + 1 for the launches; half on the second for free, less its price; the rest costs 1 on the
  // first or 2 - 1 on the second.
  EXPECT_DOUBLE_EQ(launches.split(), 2 - 0.5 + 0.5);
}

// A share of 0.3 is 2 or 3 of 9 heads, and 9 or 10 of 32 samples, where 10 is known.
TEST(MeanTime, PartsAreSharesRoundedEitherWay) {
  const ShareRange share{0.3, 0.3, 10, 10};
  EXPECT_DOUBLE_EQ(part_range(share, 32, 9).least, 2.0 / 9);
  EXPECT_DOUBLE_EQ(part_range(share, 32, 9).most, 3.0 / 9);
  EXPECT_DOUBLE_EQ(part_range(share, 32, 32).least, 10.0 / 32);
  EXPECT_DOUBLE_EQ(part_range(share, 32, 32).most, 10.0 / 32);
}

}  // namespace
}  // namespace motley::search
