#include "motley/adapt/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/adapt/drawn_noise.h"
#include "motley/base/json.h"

namespace motley::adapt {
namespace {

const std::vector<std::int64_t> kSizes = {64, 32, 16, 8, 8};

TEST(NoiseScale, HoldsTheTruthInItsIntervalAsOftenAsItSays) {
  // 380 of 400 runs, standard deviation 4.4. A shorter memory that contradicts costs little.
  for (const int steps : {6, 40}) {
    int inside = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      DrawnNoise drawn(std::vector<double>(40, 1.0), seed);
      NoiseScale scale({.initial_batch = 128});
      for (int i = 0; i < steps; ++i) scale.add(drawn.draw({1, 500}, kSizes));
      const NoiseInterval of = *scale.interval();
      EXPECT_LE(of.low, of.estimate);
      EXPECT_LE(of.estimate, of.high);
      inside += of.low <= 500 && 500 <= of.high;
    }
    EXPECT_GE(inside, 362) << steps;
    EXPECT_LE(inside, 396) << steps;
  }
}

TEST(NoiseScale, NarrowsWithSteps) {
  DrawnNoise drawn(std::vector<double>(100, 1.0), 3);
  NoiseScale scale({.initial_batch = 128});
  for (int i = 0; i < 10; ++i) scale.add(drawn.draw({1, 500}, kSizes));
  const NoiseInterval few = *scale.interval();
  for (int i = 0; i < 490; ++i) scale.add(drawn.draw({1, 500}, kSizes));
  const NoiseInterval many = *scale.interval();
  // About the root of 50.
  EXPECT_LT(many.high - many.low, 0.25 * (few.high - few.low));
  EXPECT_NEAR(many.estimate, 500, 50);
}

TEST(NoiseScale, SaysUnknownBeforeFourStepsAndWhereNothingButNoiseIsSeen) {
  DrawnNoise drawn(std::vector<double>(10, 1.0), 3);
  NoiseScale scale({.initial_batch = 128});
  for (int i = 0; i < 3; ++i) scale.add(drawn.draw({1, 1e5}, kSizes));
  EXPECT_FALSE(scale.interval());
  for (int i = 0; i < 10; ++i) scale.add(drawn.draw({1, 1e5}, kSizes));
  // |G|^2 of a step has a relative deviation of about sqrt(2 * 781^2 * 5/4 / 10) = 390.
  EXPECT_TRUE(std::isinf(scale.interval()->high));
  EXPECT_GT(scale.interval()->low, 100);  // but a large scale is certain
}

TEST(NoiseScale, ForgetsAfterAChange) {
  // A thousand times the noise from one step on, and both moments a million times smaller, as with
  // preconditioned gradients: the long averages still hold the old ones.
  DrawnNoise drawn(std::vector<double>(100, 1.0), 5);
  NoiseScale scale({.initial_batch = 128});
  NoiseScale long_memory({.initial_batch = 128, .memories = {1000}});
  for (int i = 0; i < 1000; ++i) {
    const policy::NoiseSeen seen = drawn.draw({1e6, 1e7}, kSizes);
    scale.add(seen);
    long_memory.add(seen);
  }
  EXPECT_NEAR(scale.interval()->estimate, 10, 1);
  for (int i = 0; i < 2000; ++i) {
    const policy::NoiseSeen seen = drawn.draw({1e-3, 1}, kSizes);
    scale.add(seen);
    long_memory.add(seen);
  }
  EXPECT_NEAR(scale.interval()->estimate, 1000, 400);
  EXPECT_LT(long_memory.interval()->estimate, 20);  // the reason for the rule
}

TEST(NoiseScale, PassesOverWhatIsNotFinite) {
  DrawnNoise drawn(std::vector<double>(100, 1.0), 3);
  NoiseScale scale({.initial_batch = 128});
  for (int i = 0; i < 10; ++i) scale.add(drawn.draw({1, 500}, kSizes));
  const Json before = scale.state();
  policy::NoiseSeen broken = drawn.draw({1, 500}, kSizes);
  broken.pieces[1].squared_norm = std::nan("");
  scale.add(broken);
  EXPECT_EQ(scale.state(), before);
}

TEST(NoiseScale, GoesOnIdenticalFromItsText) {
  DrawnNoise drawn(std::vector<double>(100, 1.0), 3);
  NoiseScale one({.initial_batch = 128}), other({.initial_batch = 128});
  for (int i = 0; i < 10; ++i) one.add(drawn.draw({1, 500}, kSizes));
  const std::string text = one.state().dump();
  ASSERT_TRUE(other.restore(parse_json(text, "s").value(), "s"));
  const policy::NoiseSeen seen = drawn.draw({1, 500}, kSizes);
  one.add(seen);
  other.add(seen);
  EXPECT_EQ(one.state(), other.state());
  EXPECT_EQ(one.interval()->low, other.interval()->low);
}

TEST(NoiseScale, RefusesAStateOfOtherOptions) {
  NoiseScale one({.initial_batch = 128}), other({.initial_batch = 128, .memories = {10}});
  EXPECT_EQ(other.restore(one.state(), "s").error().message,
            "s: key 'averages': wanted 1 lists of 7 numbers");
}

TEST(NoiseScale, HasAdaptDlsRatioToo) {
  // Only one step has weight: S / |G|^2 = 80 / 1 (noise_estimate_test.cc).
  NoiseScale scale({.initial_batch = 10, .memories = {1000}});
  EXPECT_FALSE(scale.plain_ratio());
  scale.add({.squared_norm = 3, .pieces = {{30, 4}, {10, 8}}});
  EXPECT_NEAR(*scale.plain_ratio(), 80, 1e-9);
  // The next one has |G|^2 = 2 * 3 - 8 < 0 and equal weight: the mean is below 0.
  scale.add({.squared_norm = 3, .pieces = {{30, 8}, {10, 8}}});
  EXPECT_TRUE(std::isinf(*scale.plain_ratio()));
}

}  // namespace
}  // namespace motley::adapt
