#include "motley/run/torch/lanes/lane_progress.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace motley::run {
namespace {

TEST(LaneProgress, WhatIsDoneIsNotWaitedFor) {
  LaneProgress progress;
  progress.advance(3);
  EXPECT_TRUE(progress.wait_for(3));
  EXPECT_TRUE(progress.wait_for(0));
}

TEST(LaneProgress, AFaultEndsAllWaits) {
  LaneProgress progress;
  bool outcome = true;
  std::thread waiter([&] { outcome = progress.wait_for(100); });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  progress.fail();
  waiter.join();
  EXPECT_FALSE(outcome);
  EXPECT_FALSE(progress.wait_for(0));
}

// Each waits for its own every fourth instruction while the lane runs on. A lost wake-up costs the
// second after which waiters check again, and there are 20,000 waits.
TEST(LaneProgress, NoWaiterIsForgotten) {
  constexpr int kWaiters = 4, kInstructions = 20'000;
  LaneProgress progress;
  std::vector<int> seen(kWaiters, 0);
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::thread> waiters;
  for (int w = 0; w < kWaiters; ++w)
    waiters.emplace_back([&, w] {
      for (int id = w; id < kInstructions; id += kWaiters)
        if (progress.wait_for(id)) ++seen[static_cast<std::size_t>(w)];
    });
  for (int id = 0; id < kInstructions; ++id) {
    progress.advance(id);
    if (id % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(5));
  }
  for (std::thread& waiter : waiters) waiter.join();
  for (const int count : seen) EXPECT_EQ(count, kInstructions / kWaiters);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

}  // namespace
}  // namespace motley::run
