#include "motley/control/planning/identical_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/testing/fake_outside.h"
#include "motley/testing/small_inputs.h"

namespace motley::control {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const DeviceId kDeviceA(0), kDeviceB(1), kDeviceC(2);

EqualTimes times_of(DeviceId id, std::vector<double> rounds) {
  return {id, {{"step", std::move(rounds)}}};
}

TEST(CompareTimes, OfTwoTheSlowerIsNamed) {
  const auto compared =
      compare_times({times_of(kDeviceA, {1, 1, 1}), times_of(kDeviceB, {2, 2, 2})});
  ASSERT_THAT(compared, SizeIs(2));
  EXPECT_EQ(compared[0].ratio, 0.5);
  EXPECT_FALSE(compared[0].is_slower());
  EXPECT_EQ(compared[1].ratio, 2);
  EXPECT_DOUBLE_EQ(compared[1].limit, 1.1);
  EXPECT_TRUE(compared[1].is_slower());
}

TEST(CompareTimes, WhatRoundsDifferByIsNoSlowness) {
  // b to a: ratios 1.0, 1.2 and 1.4. Their median deviation from 1.2 is 0.2, so three standard
  // deviations are 0.89, and 1.2 is not slower.
  const auto compared =
      compare_times({times_of(kDeviceA, {1, 1, 1}), times_of(kDeviceB, {1.0, 1.2, 1.4})});
  EXPECT_DOUBLE_EQ(compared[1].ratio, 1.2);
  EXPECT_NEAR(compared[1].limit, 1 + 3 * 1.4826 * 0.2, 1e-9);
  EXPECT_FALSE(compared[1].is_slower());
}

TEST(CompareTimes, TheMedianOperatorAndTheMedianOfTheOthersCount) {
  const auto device = [](DeviceId id, double mm, double add, double exp) {
    return EqualTimes{id, {{"mm", {mm}}, {"add", {add}}, {"exp", {exp}}}};
  };
  // c takes 1.5, 1.2 and 9 times the others' median.
  const auto compared = compare_times(
      {device(kDeviceA, 1, 10, 100), device(kDeviceB, 3, 10, 100), device(kDeviceC, 3, 12, 900)});
  EXPECT_DOUBLE_EQ(compared[2].ratio, 1.5);
  EXPECT_TRUE(compared[2].is_slower());
}

constexpr const char* kThreeHosts = R"(schema = "motley.cluster/1"
name = "three"
[[node]]
name = "a"
host = "a.example"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "b"
host = "b.example"
  [[node.device]]
  kind = "cpu"
[[node]]
name = "c"
host = "c.example"
  [[node.device]]
  kind = "cpu"
  quota = 0.5
[[link]]
all = true
bandwidth = "1Gbps"
)";

class EqualsTest : public ::testing::Test {
 protected:
  FakeWorkers workers_;
  FakeClock clock_;
  RecordingListener listener_;
  const Outside outside_{workers_, clock_, listener_};
};

TEST_F(EqualsTest, DevicesOfOneKeyAreTimedAtTheSameTime) {
  const Inputs inputs = small_inputs(kThreeHosts, 8);
  EXPECT_THAT(find_equals(inputs, "2.15"), ElementsAre(ElementsAre(kDeviceA, kDeviceB)));
  const auto compared = compare_equals(inputs, 3, outside_);
  ASSERT_TRUE(compared) << compared.error().message;
  EXPECT_THAT(listener_.notes, ElementsAre("profile: 2 devices like a:0 against each other"));
  EXPECT_THAT(workers_.calls, ElementsAre(2, 2, 2));
  ASSERT_THAT(*compared, SizeIs(2));
  EXPECT_EQ((*compared)[1].ratio, 1);
}

TEST_F(EqualsTest, TheSlowHostIsFoundAndMeasuredLast) {
  const Inputs inputs = small_inputs(kThreeHosts, 8);
  workers_.slowness = {{"a:0", 2.0}};
  const auto compared = compare_equals(inputs, 1, outside_);
  ASSERT_TRUE(compared) << compared.error().message;
  EXPECT_TRUE((*compared)[0].is_slower());
  EXPECT_DOUBLE_EQ((*compared)[0].ratio, 2);
  EXPECT_THAT(with_slower_last(inputs, *compared).devices,
              ElementsAre(kDeviceB, kDeviceC, kDeviceA));
}

TEST_F(EqualsTest, DevicesThatAreHaltedAreComparedByWholeSteps) {
  std::string cluster = kThreeHosts;
  cluster.replace(cluster.find("kind"), 4, "quota = 0.5\n  kind");
  const Inputs inputs = small_inputs(cluster, 8);
  EXPECT_THAT(find_equals(inputs, "2.15"), ElementsAre(ElementsAre(kDeviceA, kDeviceC)));
  ASSERT_TRUE(compare_equals(inputs, 1, outside_));
  EXPECT_THAT(workers_.calls, ElementsAre(2, 2, 2));
  EXPECT_EQ(workers_.timed[0].what, TimingTask::What::kWholeSteps);
}

TEST_F(EqualsTest, WithoutEqualsNothingIsTimed) {
  Inputs inputs = small_inputs(kThreeHosts, 8);
  inputs.devices = {kDeviceA, kDeviceC};
  EXPECT_THAT(compare_equals(inputs, 3, outside_).value(), IsEmpty());
  EXPECT_THAT(workers_.timed, IsEmpty());
}

}  // namespace
}  // namespace motley::control
