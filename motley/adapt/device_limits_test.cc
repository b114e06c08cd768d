#include "motley/adapt/device_limits.h"

#include <gmock/gmock.h>

namespace motley::adapt {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(EvenSamples, TheFirstDevicesHaveOneMore) {
  const std::vector<DeviceLimits> three = {{.device = "a"}, {.device = "b"}, {.device = "c"}};
  EXPECT_THAT(even_samples(three, 11), ElementsAre(4, 4, 3));
}

// b holds 2: the other 9 are split between a and c; with c at 6 or more, a has 3.
TEST(EvenSamples, KeepToLimits) {
  EXPECT_THAT(even_samples({{"a"}, {.device = "b", .most = 2}, {"c"}}, 11), ElementsAre(5, 2, 4));
  EXPECT_THAT(even_samples({{"a"}, {.device = "b", .most = 2}, {"c", 6}}, 11),
              ElementsAre(3, 2, 6));
  EXPECT_THAT(even_samples({{"a", 1, 2}, {"b", 1, 2}}, 5), IsEmpty());
  EXPECT_THAT(even_samples({{"a", 3}, {"b", 3}}, 5), IsEmpty());
}

// 10 in 3 : 1 : 1 is 6, 2, 2. 11 is 6.6, 2.2, 2.2: rounded down, one to the largest remainder.
TEST(WeightedSamples, FillUpFromTheLargestRest) {
  EXPECT_THAT(weighted_samples({{"a"}, {"b"}, {"c"}}, {3, 1, 1}, 10), ElementsAre(6, 2, 2));
  EXPECT_THAT(weighted_samples({{"a"}, {"b"}, {"c"}}, {3, 1, 1}, 11), ElementsAre(7, 2, 2));
}

policy::StepSeen step_of(std::int64_t step, std::int64_t a, std::int64_t b) {
  policy::StepSeen seen{.step = step, .global_batch = a + b};
  if (a > 0) seen.devices.push_back({.device = "a", .samples = a});
  if (b > 0) seen.devices.push_back({.device = "b", .samples = b});
  return seen;
}

TEST(AskedSplit, WaitsUntilAStepShowsIt) {
  AskedSplit asked;
  EXPECT_FALSE(asked.waits(step_of(1, 4, 4)));
  asked.ask({{"b", 8}, {"a", 0}}, 1);
  EXPECT_TRUE(asked.waits(step_of(2, 4, 4)));
  EXPECT_TRUE(asked.waits(step_of(3, 8, 0)));
  AskedSplit other;
  ASSERT_TRUE(other.restore(asked.state(), "x"));
  EXPECT_FALSE(other.waits(step_of(4, 0, 8)));
  EXPECT_FALSE(other.waits(step_of(5, 4, 4)));
}

TEST(AskedSplit, IsGivenUpAfterTwelveSteps) {
  AskedSplit asked;
  asked.ask({{"a", 8}}, 1);
  EXPECT_TRUE(asked.waits(step_of(13, 4, 4)));
  EXPECT_FALSE(asked.waits(step_of(14, 4, 4)));
}

}  // namespace
}  // namespace motley::adapt
