#include "motley/run/torch/lanes/device_clock.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "motley/run/torch/exchange/clock.h"

namespace motley::run {
namespace {

double seconds(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void work(double cpu_s) {
  const double until = seconds(CLOCK_THREAD_CPUTIME_ID) + cpu_s;
  while (seconds(CLOCK_THREAD_CPUTIME_ID) < until) {
  }
}

// 100 pieces of 0.3 ms at a quarter of a core take 100 * 0.3 ms / 0.25 = 120 ms by the clock,
// whatever else runs: emulation leaves room for others. Never less; more only if the machine does
// not provide even a quarter of a core.
TEST(DeviceClock, ChargesProcessorTime) {
  DeviceClock clock(0.25);
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  clock.start(monotonic_ns());
  for (int i = 0; i < 100; ++i) {
    work(0.3e-3);
    clock.charge();
  }
  clock.catch_up();
  const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  const double elapsed = seconds(CLOCK_MONOTONIC) - wall;
  EXPECT_GE(elapsed, 0.99 * used / 0.25);
  EXPECT_LE(elapsed, 1.5 * used / 0.25);
}

// Another thread gets the processor when a system call of this one ends, as in readings of the
// clocks. Its time is not this thread's work: between readings the clock estimates, with an error
// up to 0.1 ms / 0.2 = 0.5 ms.
TEST(DeviceClock, WhatOthersTakeWhileItLooksIsNoWork) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      for (const std::int64_t until = monotonic_ns() + 500'000; monotonic_ns() < until;) {
      }
    }
  });
  DeviceClock clock(0.2);
  clock.start(monotonic_ns());
  int wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    for (const std::int64_t until = monotonic_ns() + 150'000; monotonic_ns() < until;) {
    }
    clock.charge();
    const std::int64_t guess = clock.about_now_ns();
    if (guess - clock.now_ns() > 600'000) ++wrong;
  }
  is_over = true;
  other.join();
  ::sched_setaffinity(0, sizeof before, &before);
  EXPECT_LE(wrong, 5);
}

// 100 ms without a processor: all but the 20 ms that it may lag are skipped and are not work.
TEST(DeviceClock, TellsWhatItSkipped) {
  DeviceClock clock(0.25);
  const std::int64_t begin = monotonic_ns();
  clock.start(begin);
  work(1e-3);
  EXPECT_EQ(clock.take_jumped_ns(), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const std::int64_t worked = clock.now_ns() - begin - clock.take_jumped_ns();
  EXPECT_GE(worked, 3'990'000);  // 1 ms at a quarter
  EXPECT_LE(worked, 6'000'000);
  EXPECT_EQ(clock.take_jumped_ns(), 0);
  EXPECT_GE(clock.now_ns(), begin + 80'000'000);
}

TEST(DeviceClock, IsAheadWithoutASleepAndNotFar) {
  DeviceClock clock(0.1);
  const std::int64_t begin = monotonic_ns();
  clock.start(begin);
  work(2e-3);
  clock.charge();
  const std::int64_t real = monotonic_ns(), ahead = clock.now_ns();
  EXPECT_LT(real - begin, 15'000'000) << "worked on";
  EXPECT_GE(ahead - begin, 19'900'000);
  for (int i = 0; i < 100; ++i) {
    work(0.2e-3);
    clock.charge();
    EXPECT_LT(clock.now_ns() - monotonic_ns(), 55'000'000);
  }
  const std::int64_t end = clock.now_ns();
  clock.catch_up();
  EXPECT_GE(monotonic_ns(), end);
}

// Earlier results cause no wait, later ones do; the thread's waiting is not work.
TEST(DeviceClock, GoesOnWhenWhatItWaitedForIsThere) {
  DeviceClock clock(0.5);
  const std::int64_t begin = monotonic_ns();
  clock.start(begin);
  work(10e-3);
  const std::int64_t came = clock.now_ns();
  clock.resume(begin);
  const std::int64_t unmoved = clock.now_ns();
  EXPECT_GE(unmoved, came);
  EXPECT_LT(unmoved, came + 1'000'000);
  clock.resume(came + 30'000'000);
  const std::int64_t moved = clock.now_ns();
  EXPECT_GE(moved, came + 30'000'000);
  EXPECT_LT(moved, came + 31'000'000);
}

TEST(DeviceClock, BetweenStepsNothingIsCharged) {
  DeviceClock clock(0.5);
  clock.start(monotonic_ns());
  work(1e-3);
  clock.catch_up();
  work(5e-3);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock.start(monotonic_ns());
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  work(10e-3);
  clock.catch_up();
  // Had the 20 ms been credit, the 10 ms of work would not have been stretched.
  const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  EXPECT_GE(seconds(CLOCK_MONOTONIC) - wall, 0.95 * used / 0.5);
  EXPECT_LT(seconds(CLOCK_MONOTONIC) - wall, 1.5 * used / 0.5) << "nor were the 5 ms charged";
}

// The result was there 20 ms before the thread woke: the 20 ms that 10 ms of work take at half
// speed have partly passed, and nothing is left to sleep.
TEST(DeviceClock, MakesUpForBeingWokenLate) {
  DeviceClock clock(0.5);
  const std::int64_t there = monotonic_ns();
  clock.start(there);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock.resume(there);
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  work(10e-3);
  const double worked = seconds(CLOCK_MONOTONIC) - wall;
  clock.catch_up();
  const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  EXPECT_LT(seconds(CLOCK_MONOTONIC) - wall, worked + 0.5 * used);
}

TEST(DeviceClock, FullSpeedIsTheRealClockAndFree) {
  DeviceClock clock(1.0);
  clock.start(monotonic_ns());
  const double cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  for (int i = 0; i < 1000; ++i) clock.charge();
  clock.catch_up();
  const std::int64_t before = monotonic_ns(), now = clock.now_ns(), after = monotonic_ns();
  EXPECT_LE(before, now);
  EXPECT_LE(now, after);
  EXPECT_LT(seconds(CLOCK_THREAD_CPUTIME_ID) - cpu, 1e-3);
}

}  // namespace
}  // namespace motley::run
