#include "motley/cli/demo/processor_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace motley::cli {
namespace {

constexpr const char* kStat =
    "cpu  11100 0 0 0 0 0 0 0 0 0\n"
    "cpu0 1 20 300 4000 50000 600000 7000000 80000000 900000000 0\n"
    "cpu1 5 0 0 9 9 0 0 0 0 0\n"
    "cpu10 7 0 0 9 9 0 0 0 0 0\n"
    "intr 1 2 3\n";

TEST(BusyTicks, AreAllButIdleOfTheProcessorsInQuestion) {
  // Idle (4000) and disk waits (50000) are not busy; the first field includes guests.
  EXPECT_EQ(busy_ticks(kStat, {0}), 87'600'321);
  EXPECT_EQ(busy_ticks(kStat, {1, 10}), 12);
  EXPECT_EQ(busy_ticks(kStat, {2}), 0);
  EXPECT_EQ(busy_ticks("", {0}), 0);
}

TEST(OthersBetween, AreWhatIsBusyAndNotOurs) {
  EXPECT_DOUBLE_EQ(others_between({1, 10, 5}, {3, 14, 6}), 1.5);
  EXPECT_DOUBLE_EQ(others_between({1, 10, 5}, {3, 11, 7}), 0);
  EXPECT_DOUBLE_EQ(others_between({1, 10, 5}, {1, 14, 6}), 0);
}

TEST(ReadProcessorTime, CountsWhatThisProcessDoes) {
  const ProcessorTime begin = read_processor_time();
  ProcessorTime now = begin;
  // A tenth of a second of work; even a busy machine grants that within a minute.
  while (now.own - begin.own < 0.1 && now.passed - begin.passed < 60) now = read_processor_time();
  EXPECT_GE(now.own - begin.own, 0.1);
  EXPECT_GE(now.passed - begin.passed, 0.09);
  EXPECT_GE(now.busy - begin.busy, 0.05);
}

}  // namespace
}  // namespace motley::cli
