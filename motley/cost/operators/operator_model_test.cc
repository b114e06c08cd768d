#include "motley/cost/operators/operator_model.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::cost {
namespace {

OpEntry entry(const std::string& name, OperatorWork work, double seconds) {
  OpEntry made{{"cpu", 1, "2.15"}, name + "(f32[1])", Seconds(seconds), 0.05, 9};
  made.work = work;
  return made;
}

/// A line of 2 us + 1 ns per byte, at widely spread bytes.
std::vector<OpEntry> copies(int count) {
  std::vector<OpEntry> entries;
  for (int i = 0; i < count; ++i) {
    const double bytes = 1000 * std::pow(10, i);
    entries.push_back(entry("aten::clone", {0, bytes, 1}, 2e-6 + 1e-9 * bytes));
  }
  return entries;
}

TEST(OperatorModel, FollowsTheLine) {
  const auto model = OperatorModel::fit(copies(10));
  ASSERT_TRUE(model) << model.error().message;
  // The ridge moves the line by less than a percent.
  EXPECT_NEAR(model->seconds("aten::clone", {0, 3000, 1}).value, 5e-6, 0.05e-6);
  EXPECT_NEAR(model->seconds("aten::clone", {0, 3e6, 1}).value, 3.002e-3, 0.03e-3);
}

TEST(OperatorModel, ANearMeasurementBendsTheLine) {
  std::vector<OpEntry> entries = copies(11);
  // Ten measurements far from all others: a cache.
  const double bytes = 3.16e6;
  for (int i = 0; i < 10; ++i)
    entries.push_back(entry("aten::clone", {0, bytes, 1}, 0.5 * (2e-6 + 1e-9 * bytes)));
  const auto model = OperatorModel::fit(entries);
  ASSERT_TRUE(model);
  const double there = model->seconds("aten::clone", {0, bytes, 1}).value;
  // Weight 10 of its own residual against 0.25 of the line: 2.5 % of the way back in logarithms.
  EXPECT_NEAR(there / (0.5 * (2e-6 + 1e-9 * bytes)), 1, 0.03);
  // Far away (ln 10 / h = 6.6 deviations, weight e^-22) it has no effect.
  EXPECT_NEAR(model->seconds("aten::clone", {0, 1e9, 1}).value, 1.0, 0.25);
}

TEST(OperatorModel, AnUnknownOperatorGetsTheLineOfAll) {
  std::vector<OpEntry> entries = copies(10);
  const auto model = OperatorModel::fit(entries);
  ASSERT_TRUE(model);
  EXPECT_NEAR(model->seconds("aten::cosh", {0, 3e6, 1}).value, 3.002e-3, 0.03e-3);
}

// By the line of all, 1,000,000 bytes take 1.002 ms. A division of 4 bytes in 6 us gives no rate:
// alone, it would be fitted as 1.5 us per byte. Near it its own time holds: ln 3 above the line's 2
// us at weight 1 against 1/4 is ln 3 * 0.8.
TEST(OperatorModel, WhatIsALaunchTellsNoRate) {
  std::vector<OpEntry> entries = copies(10);
  entries.push_back(entry("aten::div.Tensor", {0, 4, 1}, 6e-6));
  const auto model = OperatorModel::fit(entries);
  ASSERT_TRUE(model);
  EXPECT_NEAR(model->seconds("aten::div.Tensor", {0, 1e6, 1}).value, 1.002e-3, 0.05e-3);
  EXPECT_GT(model->seconds("aten::div.Tensor", {0, 4, 1}).value, 4.8e-6);
  EXPECT_LT(model->seconds("aten::div.Tensor", {0, 4, 1}).value, 6e-6);
}

TEST(OperatorModel, ViewsCostWhatViewsCost) {
  std::vector<OpEntry> entries = copies(10);
  for (const double seconds : {1e-6, 3e-6, 2e-6})
    entries.push_back(entry("aten::view", {0, 0, 0}, seconds));
  const auto model = OperatorModel::fit(entries);
  ASSERT_TRUE(model);
  EXPECT_EQ(model->seconds("aten::t", {0, 0, 0}), Seconds(2e-6));
}

TEST(OperatorModel, WantsEnough) {
  EXPECT_EQ(OperatorModel::fit(copies(9)).error().message,
            "9 measured operators, wanted 10 or more to say what others take; run `motley "
            "profile` with some model first");
}

// The least measurement is half of the line, so half of the line bounds all measurements and times.
TEST(OperatorModel, LeastIsBelowAllThatItSays) {
  std::vector<OpEntry> entries = copies(10);
  entries.push_back(entry("aten::clone", {0, 3e6, 1}, 0.5 * (2e-6 + 1e-9 * 3e6)));
  const auto model = OperatorModel::fit(entries);
  ASSERT_TRUE(model);
  for (const OpEntry& each : entries) {
    EXPECT_LE(model->least_seconds("aten::clone", each.work).value, each.median.value * (1 + 1e-9));
    EXPECT_LE(model->least_seconds("aten::clone", each.work),
              model->seconds("aten::clone", each.work));
  }
  EXPECT_NEAR(model->least_seconds("aten::clone", {0, 3e6, 1}).value, 1.501e-3, 1e-9);
  EXPECT_EQ(model->least_seconds("aten::cosh", {0, 3e6, 1}),
            model->seconds("aten::cosh", {0, 3e6, 1}));  // no measurements
}

}  // namespace
}  // namespace motley::cost
