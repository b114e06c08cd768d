#include "motley/simulate/step_by_step.h"

#include <gmock/gmock.h>

#include "motley/program/program_text.h"
#include "motley/simulate/drawn_times.h"
#include "motley/testing/label_cost.h"

namespace motley::simulate {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

/// Each device computes for its milliseconds, then all meet in a sum of 1 ms.
std::shared_ptr<const program::Program> program_of(const std::vector<std::string>& devices,
                                                   const std::vector<int>& milliseconds) {
  std::string group = "group 0:", text;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    group += " " + std::to_string(rank);
    text += "device \"" + devices[rank] +
            "\" samples 0 first 0\nbuffer %0: state u8[0] \"s\"\ncompute ^0: aten::f() \"" +
            std::to_string(milliseconds[rank]) +
            "000000\"\ntransfer ^1: motley::all_reduce(%0) group 0 wait ^0\n";
  }
  return std::make_shared<const program::Program>(
      program::parse_program(
          "motley.program/1\nmodel \"\" plan \"\" global_batch 8\n" + group + "\n" + text, "p")
          .value());
}

StepByStep make(const Conditions& conditions, std::vector<std::string> devices = {"a", "b"},
                std::vector<int> milliseconds = {3, 5}) {
  return StepByStep::make(program_of(devices, milliseconds), testing::LabelCost(1'000'000),
                          conditions)
      .value();
}

constexpr Nanoseconds kMilli = 1'000'000;

TEST(StepByStep, AStepTakesWhatItsSlowestDeviceDoes) {
  const Conditions exact;
  StepByStep steps = make(exact);
  const auto first = steps.run({.step = 0}, 0).value();
  EXPECT_EQ(first.end, 6 * kMilli);  // 5 ms, and the sum
  EXPECT_THAT(first.took[0], ElementsAre(DoubleEq(0.003), DoubleEq(0.001)));
  // A known step begins later and is the same.
  const auto second = steps.run({.step = 1}, 100 * kMilli).value();
  EXPECT_EQ(second.end, 106 * kMilli);
  EXPECT_EQ(second.took, first.took);
}

// 3 ms take 9 from 10 ms to 18 ms: 10 ms in all. From 4 ms on, the slow-down begins at the step's
// end: 6 ms. From 16 ms on, 2 ms do 2/3 ms of work; the rest takes less than b: 2 + 7/3 < 5.
TEST(StepByStep, SlowDownsCountByTime) {
  Conditions conditions;
  conditions.slow_downs = {{"a", Seconds(0.010), Seconds(0.018), 3}};
  StepByStep steps = make(conditions);
  EXPECT_EQ(steps.run({.step = 0}, 4 * kMilli)->end, 10 * kMilli);
  EXPECT_EQ(steps.run({.step = 1}, 16 * kMilli)->end, 22 * kMilli);
  // From 10 ms on: 8 ms do 8/3 of 3 ms; the rest takes 1/3 ms.
  EXPECT_EQ(steps.run({.step = 2}, 10 * kMilli)->end, 10 * kMilli + 8'333'333 + kMilli);
  EXPECT_EQ(steps.run({.step = 3}, 18 * kMilli)->end, 24 * kMilli);
  conditions.slow_downs[0].until = Seconds(1);
  StepByStep slow = make(conditions);
  EXPECT_EQ(slow.run({.step = 0}, 20 * kMilli)->end, 30 * kMilli);
  EXPECT_EQ(slow.run({.step = 1}, 30 * kMilli)->end, 40 * kMilli);
}

TEST(StepByStep, ADrawDependsOnDeviceStepAndAttempt) {
  Conditions conditions;
  conditions.seed = 5;
  conditions.jitter["b"] = {.per_instruction = 0, .per_step = 0.1};
  StepByStep steps = make(conditions);
  const auto b_took = [](StepByStep& of, StepByStep::Which which, std::size_t rank) {
    return of.run(which, 0)->took[rank][0];
  };
  const double first = b_took(steps, {.step = 0}, 1);
  EXPECT_NE(first, 0.005);
  EXPECT_EQ(b_took(steps, {.step = 0}, 1), first);
  EXPECT_NE(b_took(steps, {.step = 1}, 1), first);
  EXPECT_NE(b_took(steps, {.step = 0, .attempt = 1}, 1), first);
  EXPECT_EQ(steps.run({.step = 0}, 0)->took[0][0], 0.003);  // a has no jitter
  // As rank 0 of another program it gets the same draw.
  StepByStep other = make(conditions, {"b", "c"}, {5, 1});
  EXPECT_EQ(b_took(other, {.step = 0}, 0), first);
  conditions.seed = 6;
  StepByStep reseeded = make(conditions);
  EXPECT_NE(b_took(reseeded, {.step = 0}, 1), first);
}

TEST(StepByStep, TimesThatAreNotPossibleAreRefused) {
  const Conditions exact;
  StepByStep steps = make(exact);
  const auto late = steps.run({}, INT64_MAX / 2);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().message, "the steps take more than 2^60 ns together");
}

TEST(CheckConditions, SaysWhoseDevicesTheyAre) {
  Conditions conditions;
  conditions.absences = {{"x", Seconds(1)}};
  const auto checked = check_conditions(conditions, {"a", "b"}, "the cluster");
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message, "absence of x: the cluster has no such device");
}

}  // namespace
}  // namespace motley::simulate
