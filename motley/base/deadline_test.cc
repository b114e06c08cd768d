#include "motley/base/deadline.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

TEST(Deadline, PassesAndSaysHowLongToWait) {
  EXPECT_TRUE(Deadline::after(Seconds(0)).has_passed());
  EXPECT_EQ(Deadline::after(Seconds(-5)).poll_ms(), 0);
  EXPECT_EQ(Deadline::after(Seconds(-5)).left(), Seconds(0));
  EXPECT_EQ(Deadline().left(), std::nullopt);
  const Deadline later = Deadline::after(Seconds(1000));
  EXPECT_GT(later.left(), Seconds(900));
  EXPECT_FALSE(later.has_passed());
  EXPECT_LE(later.poll_ms(), 1000 * 1000);
  EXPECT_GT(later.poll_ms(), 500 * 1000);  // the test takes less than eight minutes
}

TEST(Deadline, OneThatNeverComesIsWaitedForADayAtATime) {
  EXPECT_FALSE(Deadline().has_passed());
  EXPECT_EQ(Deadline().poll_ms(), 24 * 3600 * 1000);
  EXPECT_EQ(Deadline::after(Seconds(1e12)).poll_ms(), 24 * 3600 * 1000);
}

}  // namespace
}  // namespace motley
