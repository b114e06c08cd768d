#include "motley/cost/step/group_split.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>
#include <vector>

#include "motley/testing/random_curves.h"

namespace motley::cost {
namespace {

using ::testing::ElementsAre;

/// A device that takes `fixed` plus `seconds` per sample.
StepCurves line(double fixed, double seconds) {
  return {{}, {{{0, fixed}, {1, fixed + seconds}}}, {}};
}

// 1 + b against 2 b with 9 samples: at tau the first takes tau - 1, the second tau / 2, and tau - 1
// + tau / 2 = 9 at tau = 20/3. Whole samples: (6, 3) takes max(7, 6), (5, 4) max(6, 8).
TEST(GroupSplit, OfTwoLines) {
  const StepCurves a = line(1, 1), b = line(0, 2);
  const auto split = find_group_split({{&a, 1, 100}, {&b, 1, 100}}, {}, 9);
  ASSERT_TRUE(split);
  EXPECT_THAT(split->samples, ElementsAre(6, 3));
  EXPECT_DOUBLE_EQ(split->seconds, 7);
}

// The first alone does 4 samples in 4 s; the other needs 10 s for one.
TEST(GroupSplit, WhoMayIdleDoesWhereThatIsQuicker) {
  const StepCurves a = line(0, 1), b = line(9, 1);
  EXPECT_THAT(find_group_split({{&a, 0, 100}, {&b, 0, 100}}, {}, 4)->samples, ElementsAre(4, 0));
  EXPECT_THAT(find_group_split({{&a, 1, 100}, {&b, 1, 100}}, {}, 4)->samples, ElementsAre(3, 1));
}

TEST(GroupSplit, IsAbsentWhereTheLimitsForbidIt) {
  const StepCurves a = line(0, 1), b = line(0, 1);
  EXPECT_FALSE(find_group_split({{&a, 1, 3}, {&b, 1, 3}}, {}, 7));  // at most 3 + 3
  EXPECT_FALSE(find_group_split({{&a, 1, 9}, {&b, 1, 9}}, {}, 1));  // at least 1 + 1
  EXPECT_FALSE(find_group_split({{&a, 4, 3}, {&b, 1, 9}}, {}, 7));  // at least 4, at most 3
}

/// Returns the least step of all splits over at most `most_devices` devices.
double least_of_all_splits(const std::vector<GroupMember>& group, const GroupExchanges& exchanges,
                           std::int64_t left, std::vector<std::int64_t>& samples,
                           std::size_t most_devices) {
  const std::size_t i = samples.size();
  const auto used = std::count_if(samples.begin(), samples.end(), [](auto b) { return b > 0; });
  if (i == group.size())
    return left == 0 && static_cast<std::size_t>(used) <= most_devices
               ? group_step(group, exchanges, samples)
               : std::numeric_limits<double>::infinity();
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t b = group[i].least; b <= std::min(left, group[i].most); ++b) {
    samples.push_back(b);
    least = std::min(least, least_of_all_splits(group, exchanges, left - b, samples, most_devices));
    samples.pop_back();
  }
  return least;
}

TEST(GroupSplit, IsTheBestOfAllSplits) {
  int allowed = 0;
  for (std::uint64_t seed = 1; seed <= 600; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SplitMix64 random(seed);
    const std::size_t exchanges = random.below(4);
    std::vector<StepCurves> curves;
    for (std::uint64_t i = 0; i < 2 + seed % 3; ++i)
      curves.push_back(random_step_curves(
          random, {12, exchanges, 0.2 + 2 * random.uniform(), random.below(2) == 0}));
    std::vector<GroupMember> group;
    for (const StepCurves& each : curves)
      group.push_back({&each, static_cast<std::int64_t>(random.below(3)),
                       1 + static_cast<std::int64_t>(random.below(12))});
    GroupExchanges times{.blocking = random.uniform()};
    for (std::size_t k = 0; k < exchanges; ++k) times.exchange.push_back(random.uniform());
    const auto batch = 1 + static_cast<std::int64_t>(random.below(14));
    std::vector<std::int64_t> samples;
    const double best = least_of_all_splits(group, times, batch, samples, group.size());
    const auto found = find_group_split(group, times, batch);
    ASSERT_EQ(found.has_value(), best < std::numeric_limits<double>::infinity());
    if (!found) continue;
    ++allowed;
    std::int64_t sum = 0;
    for (const std::int64_t each : found->samples) sum += each;
    EXPECT_EQ(sum, batch);
    EXPECT_DOUBLE_EQ(found->seconds, best);
    EXPECT_EQ(found->seconds, group_step(group, times, found->samples));
    for (GroupMember& member : group) member.least = 0;
    const std::size_t fewer = group.size() - 1;
    const double best_of_fewer = least_of_all_splits(group, times, batch, samples, fewer);
    const double infinity = std::numeric_limits<double>::infinity();
    const auto of_fewer = find_group_split(group, times, batch, {fewer, infinity});
    ASSERT_EQ(of_fewer.has_value(), best_of_fewer < infinity);
    if (!of_fewer) continue;
    EXPECT_DOUBLE_EQ(of_fewer->seconds, best_of_fewer);
    EXPECT_TRUE(find_group_split(group, times, batch, {fewer, 1.001 * best_of_fewer}));
    EXPECT_FALSE(find_group_split(group, times, batch, {fewer, 0.999 * best_of_fewer}));
  }
  EXPECT_GT(allowed, 200);
}

}  // namespace
}  // namespace motley::cost
