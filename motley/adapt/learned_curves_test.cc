#include "motley/adapt/learned_curves.h"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>
#include <utility>

#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley::adapt {
namespace {

policy::DeviceStep step_of(std::int64_t samples, double end) {
  return {.device = "a:0", .samples = samples, .ready = {0.4 * end}, .end = end, .update = {0.01}};
}

double noise(SplitMix64& random, double deviation) {
  const double radius = std::sqrt(-2 * std::log(1 - random.uniform()));
  return std::exp(deviation * radius * std::cos(2 * std::numbers::pi * random.uniform()));
}

// Of 0.1 s at 32 samples a fifth is assumed fixed: 0.02 + 0.08 * 64 / 32 = 0.18.
TEST(LearnedCurves, OneReadingIsALineWithAFifthFixed) {
  LearnedCurves learned;
  EXPECT_FALSE(learned.is_known());
  learned.observe(step_of(32, 0.1), 1);
  const auto estimated = learned.estimate(128);
  EXPECT_NEAR(estimated.curves.end.at(32), 0.1, 1e-12);
  EXPECT_NEAR(estimated.curves.end.at(64), 0.18, 1e-9);
  EXPECT_NEAR(estimated.curves.ready[0].at(64), 0.4 * 0.18, 1e-9);
  EXPECT_THAT(estimated.curves.update, ::testing::ElementsAre(0.01));
  // A first step may be longer. Two measurements are certain, and less so farther away.
  EXPECT_GT(estimated.deviation.at(32), 0.07 * 0.1);
  learned.observe(step_of(32, 0.1), 2);
  EXPECT_LT(learned.estimate(128).deviation.at(32), 0.05 * 0.1);
  EXPECT_GT(estimated.deviation.at(64), 0.1 * 0.18);
  EXPECT_GT(estimated.deviation.at(128) / estimated.curves.end.at(128),
            estimated.deviation.at(64) / estimated.curves.end.at(64));
}

// 0.05 + b / 1000 at 20 and 40, exactly and often: 0.11 at 60 within the deviation of bends.
TEST(LearnedCurves, TwoPointsGiveTheirLine) {
  LearnedCurves learned;
  std::int64_t step = 0;
  for (int i = 0; i < 20; ++i) learned.observe(step_of(20, 0.07), ++step);
  for (int i = 0; i < 20; ++i) learned.observe(step_of(40, 0.09), ++step);
  const auto estimated = learned.estimate(60);
  EXPECT_NEAR(estimated.curves.end.at(20), 0.07, 1e-4);
  EXPECT_NEAR(estimated.curves.end.at(40), 0.09, 1e-4);
  EXPECT_NEAR(estimated.curves.end.at(30), 0.08, 5e-4);
  EXPECT_NEAR(estimated.curves.end.at(60), 0.11, 3e-3);
}

// Measured times that fall from 0.1 to 0.097 become one level between the two.
TEST(LearnedCurves, NeverFall) {
  LearnedCurves learned;
  std::int64_t step = 0;
  for (int i = 0; i < 9; ++i) learned.observe(step_of(30, 0.1), ++step);
  for (int i = 0; i < 9; ++i) learned.observe(step_of(40, 0.097), ++step);
  const auto points = learned.estimate(100).curves.end.points;
  for (std::size_t i = 1; i < points.size(); ++i) EXPECT_GE(points[i].second, points[i - 1].second);
  // The unmeasured part beyond does not pull measured ones down.
  EXPECT_NEAR(learned.estimate(100).curves.end.at(35), 0.0985, 0.001);
}

// 0.12 at 60 samples; the first step takes a third more, and the next one counts.
TEST(LearnedCurves, AFirstStepSaysLittle) {
  LearnedCurves learned;
  std::int64_t step = 0;
  for (int i = 0; i < 10; ++i) learned.observe(step_of(40, 0.08), ++step);
  for (const double end : {0.16, 0.12}) EXPECT_FALSE(learned.observe(step_of(60, end), ++step));
  EXPECT_NEAR(learned.estimate(60).curves.end.at(60), 0.12, 0.12 * 0.03);
}

// When all first steps take a third more, one counts as three quarters of its time.
TEST(LearnedCurves, WhatFirstStepsTakeMoreIsTakenOff) {
  LearnedCurves learned;
  std::int64_t step = 0;
  for (int i = 0; i < 40; ++i) {
    const std::int64_t samples = i % 2 == 0 ? 40 : 60;
    const double end = 0.002 * static_cast<double>(samples);
    learned.observe(step_of(samples, end * 4 / 3), ++step);
    for (int again = 0; again < 2; ++again) learned.observe(step_of(samples, end), ++step);
  }
  EXPECT_FALSE(learned.observe(step_of(80, 0.16 * 4 / 3), ++step));
  EXPECT_NEAR(learned.estimate(80).curves.end.at(80), 0.16, 0.16 * 0.02);
}

TEST(LearnedCurves, OneHiccupIsLeftOut) {
  LearnedCurves learned;
  for (int i = 1; i <= 8; ++i) learned.observe(step_of(32, 0.1), i);
  EXPECT_FALSE(learned.observe(step_of(32, 0.5), 9));
  EXPECT_FALSE(learned.observe(step_of(32, 0.1), 10));
  EXPECT_NEAR(learned.estimate(64).curves.end.at(32), 0.1, 1e-4);
}

// Twice as long from step 41 on; detected at step 42. The whole curve doubles.
TEST(LearnedCurves, AChangeScalesTheWholeCurve) {
  SplitMix64 random(3);
  LearnedCurves learned;
  std::int64_t step = 0;
  for (const std::int64_t samples : {60, 20, 40, 40})
    for (int i = 0; i < 10; ++i)
      learned.observe(
          step_of(samples, (0.05 + 0.001 * static_cast<double>(samples)) * noise(random, 0.02)),
          ++step);
  EXPECT_FALSE(learned.observe(step_of(40, 0.18), 41));
  const auto change = learned.observe(step_of(40, 0.18), 42);
  ASSERT_TRUE(change);
  EXPECT_NEAR(change->factor, 2, 0.04);
  EXPECT_EQ(change->since_step, 41);
  const auto estimated = learned.estimate(60);
  EXPECT_NEAR(estimated.curves.end.at(40), 0.18, 0.004);
  EXPECT_NEAR(estimated.curves.end.at(20), 0.14, 0.007);
  EXPECT_NEAR(estimated.curves.end.at(60), 0.22, 0.011);
  EXPECT_GT(estimated.deviation.at(20) / 0.14, 0.01);
}

// 200 steps of 5 %: the deviation of a sample deviation is 5 % / sqrt(400).
TEST(LearnedCurves, TheSpreadIsLearned) {
  SplitMix64 random(7);
  LearnedCurves learned;
  EXPECT_DOUBLE_EQ(learned.spread(), 0.03);
  for (int i = 1; i <= 200; ++i) learned.observe(step_of(32, 0.1 * noise(random, 0.05)), i);
  EXPECT_NEAR(learned.spread(), 0.05, 3 * 0.0025);
}

// A prior with the right shape at half the level: two steps double it everywhere.
TEST(LearnedCurves, APriorGivesItsShape) {
  const cost::Curve end{{{0, 0.02}, {32, 0.1}, {64, 0.11}, {128, 0.4}}};
  LearnedCurves learned(CurvePrior{{{end}, end, {0.01}}, 0.5});
  EXPECT_TRUE(learned.is_known());
  EXPECT_FALSE(learned.is_seen());
  EXPECT_NEAR(learned.estimate(128).curves.end.at(64), 0.11, 1e-12);
  EXPECT_NEAR(learned.estimate(128).deviation.at(64), 0.5 * 0.11, 0.1 * 0.11);
  for (int i = 1; i <= 2; ++i) learned.observe({"a:0", 32, {0.2}, 0.2, {0.01}}, i);
  EXPECT_NEAR(learned.estimate(128).curves.end.at(64), 0.22, 0.01);
  EXPECT_NEAR(learned.estimate(128).curves.end.at(128), 0.8, 0.04);
  EXPECT_NEAR(*learned.over_prior(), 2, 1e-12);
}

TEST(LearnedCurves, PassOverWhatIsNoTime) {
  LearnedCurves learned;
  learned.observe(step_of(32, 0), 1);
  learned.observe(step_of(32, std::nan("")), 2);
  learned.observe(step_of(0, 0.1), 3);
  EXPECT_FALSE(learned.is_known());
}

TEST(LearnedCurves, GoOnFromTheirState) {
  SplitMix64 random(5);
  LearnedCurves learned;
  const auto drawn = [&] {
    const std::int64_t samples = 10 + static_cast<std::int64_t>(random.below(4));
    return step_of(samples, 0.01 * static_cast<double>(samples) * noise(random, 0.1));
  };
  for (int i = 1; i <= 60; ++i) learned.observe(drawn(), i);
  const Json text = parse_json(learned.state().dump(), "x").value();
  LearnedCurves other;
  ASSERT_TRUE(other.restore(text, "x"));
  EXPECT_EQ(other.state(), learned.state());
  for (int i = 61; i <= 90; ++i) {
    const policy::DeviceStep seen = drawn();
    EXPECT_EQ(other.observe(seen, i).has_value(), learned.observe(seen, i).has_value());
    EXPECT_EQ(other.estimate(40).curves, learned.estimate(40).curves);
  }
}

// A file may contain anything: it is refused or gives curves, but nothing fails.
TEST(LearnedCurves, AnyStateGivesCurves) {
  LearnedCurves learned;
  for (const std::int64_t samples : {10, 20, 30}) learned.observe(step_of(samples, 0.1), samples);
  Json state = learned.state();
  state["points"][0] = state["points"][1];
  state["points"][1]["weight"] = 1e300;
  state["points"][0]["log_end"] = -99;
  state["assumed"] = 1e-300;
  LearnedCurves other;
  ASSERT_TRUE(other.restore(state, "x"));
  const auto points = other.estimate(100).curves.end.points;
  for (const auto& [samples, seconds] : points) EXPECT_GT(seconds, 0) << samples;
}

TEST(LearnedCurves, RefuseWhatIsNoState) {
  LearnedCurves learned;
  learned.observe(step_of(32, 0.1), 1);
  Json state = learned.state();
  state["squares"] = -1;
  EXPECT_EQ(LearnedCurves().restore(state, "x").error().message,
            "x: wanted times that a device can take");
  state = learned.state();
  state.erase("watch");
  EXPECT_FALSE(LearnedCurves().restore(state, "x"));
}

}  // namespace
}  // namespace motley::adapt
