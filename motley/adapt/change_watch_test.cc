#include "motley/adapt/change_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley::adapt {
namespace {

// Each counts 5 - 1: the sum is 4, then 8, above 7.
TEST(ChangeWatch, TwoFarResidualsAreAChange) {
  ChangeWatch watch;
  EXPECT_EQ(watch.observe(40), 0U);
  EXPECT_EQ(watch.observe(40), 2U);
  EXPECT_EQ(watch.observe(-40), 0U);  // it starts over, and sees both sides
  EXPECT_EQ(watch.observe(-40), 2U);
}

// 2.5 - 1 each: 1.5, 3, 4.5, 6, 7.5.
TEST(ChangeWatch, FiveNearerOnesAre) {
  ChangeWatch watch;
  for (int i = 0; i < 4; ++i) EXPECT_EQ(watch.observe(2.5), 0U);
  EXPECT_EQ(watch.observe(2.5), 5U);
}

// By then the sum is 0 and one of 25 was isolated: ln(80 / 2) = 3.7; 3.5 is less.
TEST(ChangeWatch, OneFarResidualIsForgotten) {
  ChangeWatch watch;
  EXPECT_EQ(watch.observe(40), 0U);
  for (int i = 0; i < 24; ++i) EXPECT_EQ(watch.observe(0), 0U);
  EXPECT_EQ(watch.observe(40), 0U);
  EXPECT_EQ(watch.observe(4.5), 2U);
}

// Each counts ln(155 / 11) = 2.65 and a little more: two may be chance, three are a change.
TEST(ChangeWatch, WhatIsOftenDelayedNeedsMore) {
  ChangeWatch watch;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(watch.observe(i % 10 == 0 ? 40 : 0), 0U);
  EXPECT_EQ(watch.observe(40), 0U);
  EXPECT_EQ(watch.observe(40), 0U);
  EXPECT_EQ(watch.observe(40), 3U);
}

// Noise alone; a threshold of 5 instead of 7 would see several changes.
TEST(ChangeWatch, NoiseIsNone) {
  SplitMix64 random(2);
  ChangeWatch watch;
  for (int i = 0; i < 200000; ++i) {
    const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
    ASSERT_EQ(watch.observe(radius * std::cos(2 * std::numbers::pi * random.uniform())), 0U) << i;
  }
}

TEST(ChangeWatch, GoesOnFromItsState) {
  ChangeWatch watch, other;
  (void)watch.observe(3);
  (void)watch.observe(2.5);
  ASSERT_TRUE(other.restore(watch.state(), "x"));
  EXPECT_EQ(other.state(), watch.state());
  EXPECT_EQ(other.observe(6), watch.observe(6));  // 2 + 1.5 + 4 = 7.5
  EXPECT_EQ(other.observe(1), 0U);
  const auto fault = other.restore(parse_json(R"({"above": 1})", "x").value(), "x");
  EXPECT_EQ(fault.error().message.substr(0, 2), "x:");
}

}  // namespace
}  // namespace motley::adapt
