#include "motley/elastic/time_left.h"

#include <gtest/gtest.h>

namespace motley::elastic {
namespace {

double five_of_each(const std::vector<std::size_t>& present) {
  return 5.0 * static_cast<double>(present.size());
}

TEST(TimeLeft, CountsAReplacementFromWhenItTrainsAndPaysItFromWhenItIsAskedFor) {
  // 100 steps in 20 s, 200 at 10 steps/s in 20 s; two machines are paid for 40 s: 2 * 40 * 0.01.
  const auto warm =
      estimate_left({{{}, Seconds(0), 36}, replacement(Seconds(20), 36)}, 300, five_of_each);
  ASSERT_TRUE(warm.has_value());
  EXPECT_DOUBLE_EQ(warm->time.value, 40);
  EXPECT_DOUBLE_EQ(warm->cost, 0.8);
  // Cold: the first has done all 300 steps after 60 s, before the other trains.
  const auto cold =
      estimate_left({{{}, Seconds(0), 36}, replacement(Seconds(80), 36)}, 300, five_of_each);
  EXPECT_DOUBLE_EQ(cold->time.value, 60);
  EXPECT_DOUBLE_EQ(cold->cost, 1.2);
}

TEST(TimeLeft, SaysThatNobodyIsLeft) {
  const auto none = estimate_left({{{Seconds(0), Seconds(5)}, Seconds(0), 1}}, 300, five_of_each);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().message, "nobody is left who could do the rest of the steps");
}

}  // namespace
}  // namespace motley::elastic
