#include "motley/adapt/batch_option.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "motley/adapt/batch_choice.h"
#include "motley/adapt/learning_rate.h"
#include "motley/base/random.h"

namespace motley::adapt {
namespace {

// a: 1 s + 0.1 s per sample, at most 40; b: 2 s + 0.2 s per sample, at most 30.
BatchOption two_lines() {
  return {"two",
          {{"a", {{0, 1}, {40, 5}}}, {"b", {{0, 2}, {30, 8}}}},
          {.hidden = Seconds(0), .tail = Seconds(0.5)},
          0};
}

TEST(BatchOption, FillsDevicesLikeWater) {
  // Until 2 s only a takes samples: 10. Then 10 + 5 per second until a is full at 5 s: 55 in all
  // (40 and 15); then b alone until 8 s: 70. All 0.5 s later.
  const std::vector<CurvePoint> expected = {{0, 1.5}, {10, 2.5}, {55, 5.5}, {70, 8.5}};
  const std::vector<CurvePoint> found = least_step(two_lines());
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i].samples, expected[i].samples, 1e-12);
    EXPECT_NEAR(found[i].seconds, expected[i].seconds, 1e-12);
  }
}

TEST(BatchOption, SplitsInWholeSamples) {
  // tau = 3 s: a 20, b 5.
  EXPECT_EQ(split_batch(two_lines(), 25), (std::vector<std::int64_t>{20, 5}));
  // One more: a is ready at 3.1 s, b at 3.2 s.
  EXPECT_EQ(split_batch(two_lines(), 26), (std::vector<std::int64_t>{21, 5}));
  EXPECT_EQ(split_batch(two_lines(), 7), (std::vector<std::int64_t>{7, 0}));
  EXPECT_EQ(split_batch(two_lines(), 70), (std::vector<std::int64_t>{40, 30}));
  EXPECT_TRUE(split_batch(two_lines(), 71).empty());
  EXPECT_NEAR(step_seconds(two_lines(), {21, 5}).value, 3.6, 1e-12);
  EXPECT_NEAR(step_seconds(two_lines(), {7, 0}).value, 2.2, 1e-12);  // b takes no part
  EXPECT_EQ(samples_within(two_lines(), Seconds(3.6)), 26);          // 21 at 3.1 s, 5 of 5.5
}

TEST(BatchOption, SplitsInWholeUnits) {
  BatchOption option = two_lines();
  // tau = 3.2 s: a 22, b 6.
  EXPECT_EQ(split_batch(option, 28), (std::vector<std::int64_t>{22, 6}));
  option.unit = 4;
  // Rounded down 20 and 4; with four more a is ready at 3.4 s, b at 3.6 s.
  EXPECT_EQ(split_batch(option, 28), (std::vector<std::int64_t>{24, 4}));
  EXPECT_TRUE(split_batch(option, 27).empty());
  // b takes 30, 7 units and 2 over: 68 in all.
  EXPECT_EQ(split_batch(option, 68), (std::vector<std::int64_t>{40, 28}));
  EXPECT_TRUE(split_batch(option, 72).empty());
  EXPECT_EQ(samples_within(option, Seconds(3.9)), 24 + 4);  // 24 at 3.4 s, 4 of b's 7
  EXPECT_EQ(batch_below(option, 27.5), 24);
  EXPECT_EQ(batch_above(option, 24.5), 28);
  EXPECT_EQ(batch_above(option, 24), 24);
  option.unit = 0;
  EXPECT_EQ(verify_option(option).error().message,
            "devices 'two': wanted a unit of at least 1 sample");
}

TEST(BatchOption, BeginsMicroBatchesWhereTheyFit) {
  // 4 samples in 1 s; the fifth opens another micro-batch, of 0.5 s + 0.1 s per sample.
  const BatchOption one{"one", {{"a", {{0, 0.6}, {4, 1}, {4, 1.5}, {8, 1.9}}}}, {}, 0};
  EXPECT_DOUBLE_EQ(work_seconds(one.devices[0], 4), 1);
  EXPECT_DOUBLE_EQ(work_seconds(one.devices[0], 5), 1.6);
  const std::vector<CurvePoint> least = least_step(one);
  const DeviceCurve curve{"", least};
  EXPECT_DOUBLE_EQ(work_seconds(curve, 4), 1);
  EXPECT_NEAR(work_seconds(curve, 6), 1.7, 1e-12);
}

TEST(BatchOption, TakesWhatCostsNothing) {
  // Flat up to 8 samples: they come at once.
  const BatchOption flat{"flat", {{"a", {{2, 1}, {8, 1}, {16, 2}}}}, {}, 0};
  const std::vector<CurvePoint> least = least_step(flat);
  EXPECT_DOUBLE_EQ(work_seconds(DeviceCurve{"", least}, 8), 1);
  EXPECT_DOUBLE_EQ(least.back().samples, 16);
  EXPECT_EQ(samples_within(flat, Seconds(1)), 8);
  EXPECT_EQ(samples_within(flat, Seconds(0.99)), 0);
}

TEST(BatchOption, HidesExchangesBehindWork) {
  // 0.4 s may overlap the last half: ready at t + max(0, 0.4 - t / 2); from t = 0.8 s on at t.
  const BatchOption option{"one",
                           {{"a", {{0, 0.2}, {10, 1.2}}}},
                           {.hidden = Seconds(0.4), .tail = Seconds(0.1), .share = 0.5},
                           0};
  EXPECT_NEAR(step_seconds(option, {2}).value, 0.4 + 0.2 + 0.1, 1e-12);
  EXPECT_NEAR(step_seconds(option, {8}).value, 1.0 + 0.1, 1e-12);
  // The corner is where t = 0.8: 6 samples.
  const std::vector<CurvePoint> least = least_step(option);
  EXPECT_NEAR(work_seconds(DeviceCurve{"", least}, 6), 0.9, 1e-12);
  EXPECT_NEAR(work_seconds(DeviceCurve{"", least}, 2), 0.7, 1e-12);
}

TEST(BatchOption, NamesTheCurveThatFalls) {
  BatchOption option = two_lines();
  option.devices[1].points = {{0, 2}, {30, 1}};
  EXPECT_EQ(verify_option(option).error().message,
            "devices 'two': curve of 'b': wanted samples and seconds of at least 0, rising");
  option.devices[1].points = {{0, 2}};
  EXPECT_EQ(verify_option(option).error().message,
            "devices 'two': curve of 'b': no point with samples");
  option.devices.clear();
  EXPECT_EQ(verify_option(option).error().message, "devices 'two': no devices");
}

/// Draws curves of two to five points, with jumps and flat parts.
BatchOption draw_option(SplitMix64& random, int most_devices, int most_samples) {
  BatchOption option{"drawn", {}, {}, 0};
  option.exchange = {Seconds(random.uniform()), Seconds(random.uniform()), random.uniform()};
  const auto n = 1 + random.below(static_cast<std::uint64_t>(most_devices));
  for (std::uint64_t i = 0; i < n; ++i) {
    DeviceCurve curve{std::to_string(i), {}};
    CurvePoint at{0, 0.1 + random.uniform()};
    const double speed = 0.2 + random.uniform();
    curve.points.push_back(at);
    for (std::uint64_t points = 1 + random.below(4); points-- > 0;) {
      const double kind = random.uniform();
      const double samples =
          1 + static_cast<double>(random.below(static_cast<std::uint64_t>(most_samples)));
      if (kind > 0.15) at.samples += samples;
      if (kind < 0.85) at.seconds += samples * speed * (0.5 + random.uniform()) / 10;
      curve.points.push_back(at);
    }
    if (at.samples == 0) curve.points.push_back({1, at.seconds});
    option.devices.push_back(std::move(curve));
  }
  return option;
}

double room_of(const BatchOption& option) {
  double room = 0;
  for (const DeviceCurve& curve : option.devices) room += curve.points.back().samples;
  return room;
}

/// Finds the least step over all splits.
double search_all(const BatchOption& option, std::int64_t batch, std::size_t device,
                  std::vector<std::int64_t>& samples) {
  const auto most = static_cast<std::int64_t>(option.devices[device].points.back().samples);
  if (device + 1 == option.devices.size()) {
    samples[device] = batch;
    return batch <= most ? step_seconds(option, samples).value : 1e9;
  }
  double best = 1e9;
  for (std::int64_t i = 0; i <= std::min(most, batch); i += option.unit) {
    samples[device] = i;
    best = std::min(best, search_all(option, batch - i, device + 1, samples));
  }
  return best;
}

TEST(BatchOption, SplitsAsWellAsTheBestOfAllSplits) {
  SplitMix64 random(11);
  for (int i = 0; i < 300; ++i) {
    BatchOption option = draw_option(random, 3, 4);
    option.unit = 1 + i % 3;
    ASSERT_TRUE(verify_option(option));
    const std::int64_t room = samples_within(option, Seconds(1e6));
    for (std::int64_t batch = option.unit; batch <= room; batch += option.unit) {
      std::vector<std::int64_t> samples(option.devices.size());
      const double best = search_all(option, batch, 0, samples);
      const std::vector<std::int64_t> split = split_batch(option, batch);
      ASSERT_FALSE(split.empty());
      std::int64_t sum = 0;
      for (const std::int64_t each : split) {
        EXPECT_EQ(each % option.unit, 0);
        sum += each;
      }
      EXPECT_EQ(sum, batch);
      EXPECT_NEAR(step_seconds(option, split).value, best, 1e-9) << i << " " << batch;
      // Fractions are never later.
      EXPECT_LE(work_seconds(DeviceCurve{"", least_step(option)}, static_cast<double>(batch)),
                best + 1e-9);
    }
  }
}

TEST(BatchChoice, IsTheClosedFormOnOnePiece) {
  // sqrt(0.01 * 400 / 0.0001) = 200, 0.03 s; 200 / 0.03 * 401 / 600.
  const std::vector<CurvePoint> line = {{0, 0.01}, {1000, 0.11}};
  const BatchChoice choice = *choose_batch(line, {}, 400);
  EXPECT_NEAR(choice.batch, 200, 1e-9);
  EXPECT_NEAR(choice.step.value, 0.03, 1e-12);
  EXPECT_NEAR(choice.rate, 200 / 0.03 * 401 / 600, 1e-6);
  EXPECT_NEAR(choose_batch(line, {.least = 300, .most = 500}, 400)->batch, 300, 1e-9);
  EXPECT_NEAR(choose_batch(line, {.least = 1, .most = 120.5}, 400)->batch, 120.5, 1e-9);
  EXPECT_FALSE(choose_batch(line, {.least = 1001}, 400));
  EXPECT_NEAR(choose_batch(line, {}, std::numeric_limits<double>::infinity())->batch, 1000, 1e-9);
}

TEST(BatchChoice, IsNeverBeatenByAGridOf4000) {
  SplitMix64 random(12);
  for (int i = 0; i < 200; ++i) {
    const BatchOption option = draw_option(random, 16, 100);
    const std::vector<CurvePoint> least = least_step(option);
    const double noise = std::exp(12 * random.uniform()), room = room_of(option);
    const BatchChoice choice = *choose_batch(least, {.least = 1}, noise);
    const DeviceCurve curve{"", least};
    for (int k = 0; k < 4000; ++k) {
      const double batch = 1 + (room - 1) * k / 3999.0;
      const double rate = batch_gain(batch, 1, noise) / work_seconds(curve, batch);
      ASSERT_LE(rate, choice.rate * (1 + 1e-9)) << i << " " << batch;
    }
  }
}

}  // namespace
}  // namespace motley::adapt
