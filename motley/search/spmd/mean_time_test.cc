#include "motley/search/spmd/mean_time.h"

#include <gtest/gtest.h>

namespace motley::search {
namespace {

// Two devices of weight 1/2 together, 4 s each for the whole, nothing fixed, no launch: of a split
// operator the mean is 1/2 of 4 s times the parts, which sum to 1, over two devices: 1/2 * 4 / 2.
TEST(MeanTime, SplitsWholeWorkWhereItWeighsLeast) {
  MeanTime mean;
  mean.add(2, 0.5, {.whole = 4});
  mean.add(1, 0.5, {.whole = 8});
  EXPECT_DOUBLE_EQ(mean.whole(), 0.5 * 4 + 0.5 * 8);
  // All of it goes to the pair, at 0.25 a device: 4 s * 0.25; at the other it would weigh 4.
  EXPECT_DOUBLE_EQ(mean.split(), 1);
}

// A launch of 1 s is paid by both; within it each does a quarter of the 4 s, so half is free and
// the other half adds 1/2 * 4 * 1/2.
TEST(MeanTime, WithinALaunchPartsAreFree) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 4, .least = 1});
  mean.add(1, 0.5, {.whole = 4, .least = 1});
  EXPECT_DOUBLE_EQ(mean.split(), 1 + 0.5 * 4 * 0.5);
}

// 1 s of 4 is for operands of which each has all: both pay it, and 3 s are split.
TEST(MeanTime, WhatIsFixedIsPaidByAll) {
  MeanTime mean;
  mean.add(1, 0.5, {.whole = 4, .fixed = 1});
  mean.add(1, 0.5, {.whole = 4, .fixed = 1});
  EXPECT_DOUBLE_EQ(mean.split(), 1 + 0.5 * 3);
}

// What takes no longer than a launch is done whole for the launch.
TEST(MeanTime, ALaunchIsNoLongerThanTheWhole) {
  MeanTime mean;
  mean.add(1, 1, {.whole = 2, .least = 5});
  EXPECT_DOUBLE_EQ(mean.whole(), 2);
  EXPECT_DOUBLE_EQ(mean.split(), 2);
}

}  // namespace
}  // namespace motley::search
