#include "motley/search/split/step_model.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "motley/testing/random_problem.h"

namespace motley::search {
namespace {

using ::testing::ElementsAre;
using Setting = SplitEvaluator::Setting;

// c = (3, 4), u = (1, 2): tails of the updates (3, 2), W_2 = 4 + 2, W_1 = 3 + max(3, 6).
TEST(StepModel, ExchangeTails) {
  StepCurves curves;
  curves.update = {1, 2};
  EXPECT_THAT(update_tails(curves), ElementsAre(3, 2));
  EXPECT_THAT(exchange_tails({3, 4}, {3, 2}), ElementsAre(9, 6));
}

/// The lanes themselves, event by event.
double run_lanes(const ToyProblem& toy, const BatchSplit& split) {
  const GroupExchanges times = toy.group(split.devices);
  std::vector<double> finished;  // of each exchange
  double lane = 0.0;
  for (std::size_t k = 0; k < times.exchange.size(); ++k) {
    for (std::size_t i = 0; i < split.devices.size(); ++i) {
      const auto& curves = toy.evaluator->curves(split.devices[i], Setting::kShared);
      lane = std::max(lane, curves.ready[k].at(static_cast<double>(split.samples[i])));
    }
    lane += times.exchange[k];
    finished.push_back(lane);
  }
  double step = 0.0;
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    const auto& curves = toy.evaluator->curves(split.devices[i], Setting::kShared);
    double now = curves.end.at(static_cast<double>(split.samples[i]));
    for (std::size_t k = 0; k < finished.size(); ++k) {
      now = std::max(now, finished[k]) + curves.update[k];
    }
    step = std::max(step, now);
  }
  return step + times.blocking;
}

TEST(StepModel, EqualsTheLanes) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const ToyProblem toy =
        random_problem(seed, {.least_devices = 2, .ordered_updates = seed % 2 == 0});
    SplitMix64 random(seed);
    BatchSplit split;
    for (const DeviceId device : toy.problem.devices) {
      split.devices.push_back(device);
      split.samples.push_back(1 + static_cast<std::int64_t>(random.below(12)));
    }
    EXPECT_NEAR(model_step(*toy.evaluator, split), run_lanes(toy, split), 1e-12);
  }
}

// f is max(ready + 2, end): b = 1 takes max(1 + 2, 2) = 3, b = 3 takes max(3 + 2, 6) = 6.
TEST(StepModel, InverseOfAnExample) {
  StepCurves curves;
  curves.ready = {{{{0, 0}, {1, 1}}}};
  curves.end = {{{0, 0}, {1, 2}}};
  curves.update = {0};
  EXPECT_DOUBLE_EQ(step_seconds(curves, {2}, 1), 3);
  EXPECT_DOUBLE_EQ(step_seconds(curves, {2}, 3), 6);
  EXPECT_DOUBLE_EQ(largest_samples(curves, {2}, 3), 1);
  EXPECT_DOUBLE_EQ(largest_samples(curves, {2}, 6), 3);
  EXPECT_EQ(largest_samples(curves, {2}, 1.9), -std::numeric_limits<double>::infinity());
}

TEST(StepModel, InverseIsTheLargestSolution) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 random(seed);
    const auto device = random_device(random, 12, random.below(4), true);
    std::vector<double> tails(device.shared.ready.size(), random.uniform());
    const double seconds = 5 * random.uniform();
    const double samples = largest_samples(device.shared, tails, seconds);
    if (!std::isfinite(samples)) continue;
    EXPECT_LE(step_seconds(device.shared, tails, samples - 1e-9), seconds + 1e-9);
    EXPECT_GE(step_seconds(device.shared, tails, samples + 1e-6), seconds - 1e-9);
  }
}

}  // namespace
}  // namespace motley::search
