#include "motley/control/rehearsal/rehearsed_course.h"

#include <gtest/gtest.h>

namespace motley::control {
namespace {

constexpr trace::Nanoseconds kOneSecond = 1'000'000'000;

TEST(RehearsedCourse, CountsWhatIsDoneAndLost) {
  RehearsedCourse course;
  EXPECT_EQ(course.end_step(2 * kOneSecond, 24, 1), 2);
  course.lose_step(kOneSecond);
  EXPECT_EQ(course.attempt(), 1);
  course.change(kOneSecond);
  EXPECT_EQ(course.end_step(7 * kOneSecond, 48, 1.5), 3);
  EXPECT_EQ(course.attempt(), 0);
  EXPECT_EQ(course.step(), 2);
  EXPECT_EQ(course.result.lost, Seconds(1));
  EXPECT_EQ(course.result.paused, Seconds(1));
  EXPECT_EQ(course.result.samples, 72);
  EXPECT_EQ(course.result.progress, 2.5);
}

TEST(RehearsedCourse, GoesBackToTheLastCheckpoint) {
  RehearsedCourse course;
  for (int step = 1; step <= 5; ++step) course.end_step(step * kOneSecond, 10, 1);
  EXPECT_EQ(course.saved_step(2), 4);
  course.stop();
  EXPECT_EQ(course.saved_step(2), 5);
  course.go_back(2);
  EXPECT_EQ(course.step(), 2);
  EXPECT_EQ(course.result.lost_steps, 3);
  EXPECT_EQ(course.result.lost, Seconds(3));
  EXPECT_EQ(course.result.samples, 20);
  EXPECT_EQ(course.now(), 5 * kOneSecond);  // time does not
}

}  // namespace
}  // namespace motley::control
