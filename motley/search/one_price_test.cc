// A split of the batch and a sharding by samples do the same, so all planners price them alike.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "motley/search/region/random_region.h"
#include "motley/search/split/split_planner.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/rounds.h"

namespace motley::search {
namespace {

constexpr std::int64_t kSamplesSplit = 12;

/// Calls `act` with every split of the batch over two or more devices.
void for_each_split(const std::vector<DeviceId>& devices,
                    const std::function<void(const BatchSplit&)>& act) {
  std::vector<std::int64_t> samples(devices.size());
  const std::function<void(std::size_t, std::int64_t)> visit = [&](std::size_t i,
                                                                   std::int64_t left) {
    if (i + 1 == devices.size()) {
      samples[i] = left;
      BatchSplit split;
      for (std::size_t d = 0; d < devices.size(); ++d) {
        if (samples[d] == 0) continue;
        split.devices.push_back(devices[d]);
        split.samples.push_back(samples[d]);
      }
      if (split.devices.size() > 1) act(split);
      return;
    }
    for (samples[i] = 0; samples[i] <= left; ++samples[i]) visit(i + 1, left - samples[i]);
  };
  visit(0, kSamplesSplit);
}

class OnePrice : public ::testing::TestWithParam<std::string> {};

TEST_P(OnePrice, SplitsOfTheBatchCostTheSameAsShardingsBySamples) {
  const char* const models[] = {"mlp", "gpt"};
  for (std::size_t m = 0; m < testing::rounds(1, 2); ++m) {
    const char* model = models[m];
    const InventedProfile invented(synth::read_graph(model), three_devices(GetParam()),
                                   kSamplesSplit);
    const plan::Problem problem = invented.problem();
    for_each_split(problem.devices, [&](const BatchSplit& split) {
      synth::Sharding sharding;
      for (std::size_t i = 0; i < split.devices.size(); ++i) {
        sharding.devices.push_back(problem.cluster->device(split.devices[i]).name);
        sharding.shares.push_back(static_cast<double>(split.samples[i]));
      }
      sharding.batch = kSamplesSplit;
      synth::spread_samples(invented.model().graph, sharding);
      const plan::Region region =
          synth::make_region(invented.model().graph, sharding, *problem.cluster);
      const auto as_split = invented.evaluator().price(make_split_plan(problem, split));
      const auto as_sharding = invented.evaluator().price(make_region_plan(problem, region));
      ASSERT_TRUE(as_split) << as_split.error().message;
      ASSERT_TRUE(as_sharding) << as_sharding.error().message;
      EXPECT_NEAR(as_sharding->step / as_split->step, 1.0, 0.01)
          << model << " " << fmt::format("{}", fmt::join(split.samples, ":"));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, OnePrice, ::testing::Values("emulated", "far", "kinds"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace motley::search
