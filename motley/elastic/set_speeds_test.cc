#include "motley/elastic/set_speeds.h"

#include <gtest/gtest.h>

namespace motley::elastic {
namespace {

double count(const Machines& machines) { return static_cast<double>(machines.size()); }

TEST(SetSpeeds, AStepCountsAFifthAndAHiccupLittle) {
  std::vector<MeasuredSet> sets;
  add_step(sets, {1}, Seconds(2));
  add_step(sets, {0, 1}, Seconds(1));
  ASSERT_EQ(sets.size(), 2u);
  EXPECT_EQ(sets[0].machines, (Machines{0, 1}));  // ascending
  add_step(sets, {1}, Seconds(3));
  EXPECT_DOUBLE_EQ(sets[1].step_s, 2.2);
  add_step(sets, {0, 1}, Seconds(100));  // as three times the usual: 1 + 0.2 x 2
  EXPECT_DOUBLE_EQ(sets[0].step_s, 1.4);
}

TEST(SetSpeeds, UnmeasuredOnesAreScaledAsTheNearest) {
  EXPECT_EQ(find_speed({0}, {}, count), 0);
  // One machine does half of its predicted step per second, four do a quarter of their four.
  const std::vector<MeasuredSet> sets = {{{0}, 2}, {{0, 1, 2, 3}, 1}};
  EXPECT_DOUBLE_EQ(find_speed({0}, sets, count), 0.5);
  EXPECT_DOUBLE_EQ(find_speed({1, 2, 3}, sets, count), 0.75);
  EXPECT_DOUBLE_EQ(find_speed({4}, sets, count), 0.5);
  EXPECT_EQ(find_speed({}, sets, count), 0);
}

}  // namespace
}  // namespace motley::elastic
