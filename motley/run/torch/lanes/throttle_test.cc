#include "motley/run/torch/lanes/throttle.h"

#include <gtest/gtest.h>
#include <time.h>

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

/// Spins until the thread has used `cpu_s` more of a processor.
void work(double cpu_s) {
  const double until = seconds(CLOCK_THREAD_CPUTIME_ID) + cpu_s;
  while (seconds(CLOCK_THREAD_CPUTIME_ID) < until) {
  }
}

// 100 pieces of 0.3 ms at a quarter of a core take 100 * 0.3 ms / 0.25 = 120 ms by the clock,
// whatever else runs on the machine: being throttled makes room for others. Never less; more only
// if the machine does not even give a quarter of a core.
TEST(Throttle, ChargesProcessorTime) {
  Throttle throttle(0.25);
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  throttle.resume(monotonic_ns());
  for (int i = 0; i < 100; ++i) {
    work(0.3e-3);
    throttle.charge();
  }
  throttle.catch_up();
  const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  const double elapsed = seconds(CLOCK_MONOTONIC) - wall;
  EXPECT_GE(elapsed, 0.99 * used / 0.25);
  EXPECT_LE(elapsed, 1.5 * used / 0.25);
}

TEST(Throttle, WaitingNeitherEarnsNorCosts) {
  Throttle throttle(0.5);
  throttle.resume(monotonic_ns());
  work(1e-3);
  throttle.catch_up();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  throttle.resume(monotonic_ns());
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  work(10e-3);
  throttle.catch_up();
  // Had the 20 ms of waiting earned credit, the 10 ms of work would not have been stretched.
  const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  EXPECT_GE(seconds(CLOCK_MONOTONIC) - wall, 0.95 * used / 0.5);
}

// What it waited for was there for 20 ms before it was woken: so much of the 20 ms that 10 ms of
// work take at half speed has passed, and nothing is left to sleep off.
TEST(Throttle, MakesUpForBeingWokenLate) {
  Throttle throttle(0.5);
  const std::int64_t there = monotonic_ns();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  throttle.resume(there);
  const double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_THREAD_CPUTIME_ID);
  work(10e-3);
  const double worked = seconds(CLOCK_MONOTONIC) - wall;
  throttle.catch_up();
  const double used = seconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
  EXPECT_LT(seconds(CLOCK_MONOTONIC) - wall, worked + 0.5 * used);
}

TEST(Throttle, FullSpeedIsFree) {
  Throttle throttle(1.0);
  throttle.resume(monotonic_ns());
  const double cpu = seconds(CLOCK_THREAD_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
  for (int i = 0; i < 1000; ++i) throttle.charge();
  throttle.catch_up();
  EXPECT_LT(seconds(CLOCK_THREAD_CPUTIME_ID) - cpu, 1e-3);
  EXPECT_LT(seconds(CLOCK_MONOTONIC) - wall, 1.0);
}

}  // namespace
}  // namespace motley::run
