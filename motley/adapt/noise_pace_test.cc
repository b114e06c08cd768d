#include "motley/adapt/noise_pace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "motley/adapt/batch_choice.h"
#include "motley/adapt/drawn_noise.h"
#include "motley/base/json.h"
#include "motley/base/random.h"

namespace motley::adapt {
namespace {

TEST(NoisePace, AWrongNoiseScaleLosesAtMostASixteenthOfItsSquaredLogarithm) {
  // The header's derivation, to second order: beyond, the loss grows more slowly.
  SplitMix64 random(7);
  double worst = 0;
  for (int i = 0; i < 2000; ++i) {
    const double fixed = std::pow(10, 4 * random.uniform() - 3);
    const double slope = std::pow(10, 3 * random.uniform() - 4);
    const double noise = std::pow(10, 4 * random.uniform()), x = 2 * random.uniform() - 1;
    const std::vector<CurvePoint> line = {{0, fixed}, {1e9, fixed + 1e9 * slope}};
    const double right = choose_batch(line, {.least = 1e-9}, noise)->batch;
    const double wrong = choose_batch(line, {.least = 1e-9}, noise * std::exp(x))->batch;
    const auto rate = [&](double batch) {
      return batch / (fixed + slope * batch) / (noise + batch);
    };
    worst = std::max(worst, (1 - rate(wrong) / rate(right)) / (x * x / 16));
  }
  EXPECT_LT(worst, 1.0);
  EXPECT_GT(worst, 0.95);
}

/// A training at a known noise scale that consults the pace in each step.
struct Course {
  explicit Course(double adds, std::uint64_t seed = 1)
      : added(adds), drawn(std::vector<double>(20, 1.0), seed) {}

  void go(int steps, double noise) {
    for (; steps > 0; --steps, ++step) {
      const bool is_measured = step % pace.every() == 0;
      measured += is_measured;
      spent += 1 + (is_measured ? added : 0);
      pace.see_step(Seconds(1 + (is_measured ? added : 0) + 0.01 * drawn.draw_normal()), 96);
      if (!is_measured) continue;
      const NoisePace::Passed passed = pace.see_noise();
      scale.add(drawn.draw({1, noise}, {48, 32, 16}), passed.samples);
      if (const auto interval = scale.interval()) pace.decide(*interval);
    }
  }

  double added;
  DrawnNoise drawn;
  NoiseScale scale{{.initial_batch = 96}};
  NoisePace pace{96, NoiseOptions().memories.front()};
  int step = 0, measured = 0;
  double spent = 0;
};

TEST(NoisePace, MeasuresSeldomWhereTheScaleIsKnown) {
  Course course(0.4);
  course.go(32, 100);
  EXPECT_EQ(course.measured, 32);  // it waits
  course.go(4000, 100);
  // The shortest memory limits it: 16 is the last power of two below half of 62.5.
  EXPECT_EQ(course.pace.every(), 16);
  EXPECT_NEAR(*course.pace.cost(), 0.4, 0.02);
  EXPECT_LT(course.measured, 1000);
  EXPECT_LT(course.spent, 4032 * 1.1);
  const NoiseInterval known = *course.scale.interval();
  EXPECT_LT(known.low, 100);
  EXPECT_GT(known.high, 100);
}

TEST(NoisePace, WeighsWhatMeasuringCostsAgainstWhatItBrings) {
  // Of 1,000 steps, the logarithm known to sqrt(v / n) with v = 2: k = sqrt(32 * 1000 * c / 2), so
  // 4 at a cost of 0.1 % and 8 at 0.4 %; 2 * 1000 / k = 500 and 250 measured steps are wanted.
  for (const auto& [cost, every] : {std::pair(0.001, 4), std::pair(0.004, 8)}) {
    const auto ask = [&](double steps) {
      NoisePace pace(96, 62.5);
      for (int i = 0; i < 80; ++i) {
        pace.see_step(Seconds(1 + (i % 2 == 0 ? cost : 0)), 96);
        if (i % 2 == 0) pace.see_noise();
      }
      const double half = 1.96 * std::sqrt(2 / steps);
      pace.decide({100 * std::exp(-half), 100, 100 * std::exp(half), steps, 1000});
      return pace.every();
    };
    EXPECT_EQ(ask(2000.0 / every * 1.05), every);
    EXPECT_EQ(ask(2000.0 / every * 0.95), 1);
  }
}

TEST(NoisePace, MeasuresEachStepWhereThatAddsNothing) {
  NoisePace pace(96, 62.5);
  for (int i = 0; i < 80; ++i) {
    pace.see_step(Seconds(1), 96);
    if (i % 2 == 0) pace.see_noise();
  }
  pace.decide({99, 100, 101, 1000, 1000});
  EXPECT_EQ(pace.every(), 1);
}

TEST(NoisePace, GoesOnSeldomWhereNothingComesOfIt) {
  const auto every_after = [](int steps, const NoiseInterval& noise) {
    NoisePace pace(96, 62.5);
    for (int i = 0; i < steps; ++i) {
      const bool is_measured = i % pace.every() == 0;
      pace.see_step(Seconds(is_measured ? 1.3 : 1), 96);
      if (!is_measured) continue;
      pace.see_noise();
      pace.decide(noise);
    }
    return pace.every();
  };
  constexpr double kEndless = std::numeric_limits<double>::infinity();
  // Scales below a batch of one sample are all equal, known or not.
  EXPECT_EQ(every_after(100, {0, 0, 0, 60, 62.5}), 16);
  EXPECT_EQ(every_after(100, {0.01, 0.1, 0.9, 60, 62.5}), 16);
  // Without an upper bound: 0.3 at most 0.05 per step.
  EXPECT_EQ(every_after(200, {50, kEndless, kEndless, 200, 1000}), 1);
  EXPECT_EQ(every_after(400, {50, kEndless, kEndless, 300, 1000}), 8);
}

TEST(NoisePace, MeasuresEachStepAsSoonAsTheScaleMoves) {
  for (const double noise : {1000.0, 10.0}) {
    Course course(0.4);
    course.go(4000, 100);
    ASSERT_EQ(course.pace.every(), 16);
    int steps = 0;
    for (; course.pace.every() > 1 && steps < 1000; ++steps) course.go(1, noise);
    EXPECT_LT(steps, 250) << noise;
    course.go(2000, noise);
    EXPECT_NEAR(std::log(course.scale.interval()->estimate / noise), 0, 0.5) << noise;
  }
}

TEST(NoisePace, BeginsAnewAfterAChange) {
  Course course(0.4);
  course.go(2000, 100);
  ASSERT_GT(course.pace.every(), 1);
  course.pace.begin_anew();
  EXPECT_EQ(course.pace.every(), 1);
  const int before = course.measured;
  course.go(32, 100);
  EXPECT_EQ(course.measured - before, 32);
  course.go(200, 100);
  EXPECT_GT(course.pace.every(), 1);
}

TEST(NoisePace, GoesOnFromItsState) {
  Course course(0.4);
  course.go(500, 100);
  NoisePace other(96, NoiseOptions().memories.front());
  ASSERT_TRUE(other.restore(course.pace.state(), "s"));
  EXPECT_EQ(other.state(), course.pace.state());
  EXPECT_EQ(other.every(), course.pace.every());
  Json broken = course.pace.state();
  broken["costs"] = 3;
  EXPECT_EQ(other.restore(broken, "s").error().message,
            "s: not a state of how often noise is measured");
}

}  // namespace
}  // namespace motley::adapt
