#include "motley/control/training/ready_plans.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

namespace motley::control {
namespace {

using Devices = ReadyPlans::Devices;

/// Labels plans by their devices, counts calls, and fails on concurrent calls.
class Maker {
 public:
  ReadyPlans::Make make() {
    return [this](const Devices& devices) -> Result<Candidate> {
      EXPECT_EQ(inside_.fetch_add(1), 0) << "two at a time";
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      Candidate candidate;
      for (const DeviceId device : devices) candidate.label += std::to_string(device.value);
      inside_.fetch_sub(1);
      calls.fetch_add(1);
      if (devices.size() == 1) return tl::make_unexpected(infeasible_error({}));
      return candidate;
    };
  }
  std::atomic<int> calls = 0;

  void wait_for(int count) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (calls < count && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(calls, count);
  }

 private:
  std::atomic<int> inside_ = 0;
};

Devices devices_of(std::initializer_list<int> numbers) {
  Devices devices;
  for (const int number : numbers) devices.emplace_back(number);
  return devices;
}

TEST(ReadyPlans, AreThereWhenOneIsLost) {
  Maker maker;
  ReadyPlans plans(maker.make());
  plans.prepare(devices_of({0, 1, 2}));
  maker.wait_for(3);
  EXPECT_EQ(plans.find(devices_of({0, 2}))->label, "02");
  EXPECT_EQ(maker.calls, 3);
  EXPECT_EQ(plans.find(devices_of({1})).error().code, "plan.infeasible");
  EXPECT_EQ(maker.calls, 4);
}

TEST(ReadyPlans, AreMadeOnceForTheSameDevices) {
  Maker maker;
  ReadyPlans plans(maker.make());
  for (int i = 0; i < 3; ++i) plans.prepare(devices_of({0, 1, 2}));
  maker.wait_for(3);
  plans.prepare(devices_of({0, 1, 2}));
  EXPECT_EQ(plans.find(devices_of({1, 2}))->label, "12");
  EXPECT_EQ(maker.calls, 3);
  // Only two losses are new for the remaining devices; other plans are dropped.
  plans.prepare(devices_of({1, 2}));
  maker.wait_for(5);
}

TEST(ReadyPlans, OneThatIsNotReadyIsMadeForWhoAsks) {
  Maker maker;
  ReadyPlans plans(maker.make());
  for (int i = 0; i < 20; ++i) {
    plans.prepare(devices_of({0, 1, 2, 3, i + 4}));
    EXPECT_EQ(plans.find(devices_of({0, 1, 2, i + 4}))->label, fmt::format("012{}", i + 4));
  }
}

}  // namespace
}  // namespace motley::control
