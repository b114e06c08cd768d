#include "motley/search/split/step_model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motley/testing/random_problem.h"

namespace motley::search {
namespace {

using Setting = SplitEvaluator::Setting;

/// Simulates the lanes event by event.
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

}  // namespace
}  // namespace motley::search
