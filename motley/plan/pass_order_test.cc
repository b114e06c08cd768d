#include "motley/plan/pass_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace motley::plan {
namespace {

using Pass = StageTask::Pass;

/// A chain of regions; task 2 * (micro_batch * regions + region) is its forward, the next its
/// backward.
std::vector<StageTask> chain(std::size_t regions, std::size_t micro_batches) {
  std::vector<StageTask> tasks;
  for (std::size_t m = 0; m < micro_batches; ++m)
    for (std::size_t r = 0; r < regions; ++r) {
      const auto number = [&](std::size_t region) { return 2 * (m * regions + region); };
      StageTask forward{r, m, Pass::kForward, 1, {}}, backward{r, m, Pass::kBackward, 2, {}};
      if (r > 0) forward.needs = {number(r - 1)};
      backward.needs = {number(r)};
      if (r + 1 < regions) backward.needs.push_back(number(r + 1) + 1);
      tasks.push_back(forward);
      tasks.push_back(backward);
    }
  return tasks;
}

/// "F0 F1 B0 ..." of one region.
std::string order_in(const std::vector<StageTask>& tasks, const std::vector<TaskPlace>& places,
                     std::size_t region) {
  std::string text;
  for (const OrderedTask& each : order_tasks(tasks, places)) {
    if (tasks[each.tasks.front()].region != region) continue;
    text += " ";
    for (const std::size_t t : each.tasks) {
      text += tasks[t].pass == Pass::kForward ? "F" : "B";
      text += std::to_string(tasks[t].micro_batch);
    }
  }
  return text;
}

TEST(OrderTasks, OneForwardOneBackward) {
  const std::vector<TaskPlace> places = {{{0}, 3}, {{1}, 2}, {{2}, 1}};
  const std::vector<StageTask> tasks = chain(3, 4);
  EXPECT_EQ(order_in(tasks, places, 0), " F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(order_in(tasks, places, 1), " F0 F1 B0 F2 B1 F3 B2 B3");
  EXPECT_EQ(order_in(tasks, places, 2), " F0 B0 F1 B1 F2 B2 F3 B3");
}

// Two devices, each of two regions in turns: both fill in the time of one region, and the micro-
// batch that is furthest on its way goes first (Narayanan et al., SC 2021).
TEST(OrderTasks, DevicesOfSeveralRegionsFillInTheTimeOfOne) {
  const std::vector<TaskPlace> places = {{{0}, 4}, {{1}, 3}, {{0}, 2}, {{1}, 1}};
  const std::vector<StageTask> tasks = chain(4, 2);
  const auto on_device = [&](std::size_t device) {
    std::string text;
    for (const OrderedTask& each : order_tasks(tasks, places))
      if (const std::size_t t = each.tasks.front(); tasks[t].region % 2 == device)
        text += (tasks[t].pass == Pass::kForward ? " F" : " B") +
                std::to_string(tasks[t].micro_batch) + "abcd"[tasks[t].region];
    return text;
  };
  EXPECT_EQ(on_device(0), " F0a F1a F0c F1c B0c B1c B0a B1a");
  EXPECT_EQ(on_device(1), " F0b F1b F0d B0d F1d B1d B0b B1b");
}

TEST(OrderTasks, AllForwardsFirst) {
  const std::vector<TaskPlace> places = {{{0}, 3}, {{1}, 3}};
  EXPECT_EQ(order_in(chain(2, 3), places, 0), " F0 F1 F2 B0 B1 B2");
}

// The last region is quick, the first one slow: the gradient of the first micro-batch is there at
// 2.8, before the second micro-batch, which comes at 4, as the backward task would be over at 4.8.
TEST(OrderTasks, TheNextMicroBatchBeginsBeforeABackwardTaskThatWouldOutlastItsComing) {
  const std::vector<TaskPlace> places = {{{0}, 3}, {{1}, 2}, {{2}, 1}};
  constexpr double kForward[] = {2, 0.5, 0.1}, kBackward[] = {1, 2, 0.2};
  std::vector<StageTask> tasks = chain(3, 3);
  for (StageTask& task : tasks)
    task.work = (task.pass == Pass::kForward ? kForward : kBackward)[task.region];
  EXPECT_EQ(order_in(tasks, places, 1), " F0 F1 B0 F2 B1 B2");
}

// A gradient that is on its way for as long as a forward task lets one more of these come before
// it.
TEST(OrderTasks, WhatIsOnItsWayIsWaitedForWithOtherWork) {
  const std::vector<StageTask> tasks = chain(2, 4);
  EXPECT_EQ(order_in(tasks, {{{0}, 3}, {{1}, 1}}, 0), " F0 F1 F2 B0 F3 B1 B2 B3");
  EXPECT_EQ(order_in(tasks, {{{0}, 4, 1}, {{1}, 1, 1}}, 0), " F0 F1 F2 F3 B0 B1 B2 B3");
  EXPECT_EQ(order_in(tasks, {{{0}, 2, 1}, {{1}, 1, 1}}, 0), " F0 F1 B0 F2 B1 F3 B2 B3");
}

// Where tasks are done in pairs the order is known before anything is merged: each message is there
// when a pair begins. Stage s of S has 2 (S - s) - 1 micro-batches under way before its first
// backward task, as what a pair gives is there at its end; so each is busy in between.
TEST(OrderTasks, PairsOfTwoMicroBatches) {
  const auto with_pairs = [](std::size_t device, std::int64_t ahead) {
    TaskPlace place{{device}, ahead};
    place.pairs = true;
    return place;
  };
  const std::vector<StageTask> tasks = chain(2, 5);
  const std::vector<TaskPlace> places = {with_pairs(0, 3), with_pairs(1, 1)};
  EXPECT_EQ(order_in(tasks, places, 0), " F0 F1 F2 F3B0 F4B1 B2 B3 B4");
  EXPECT_EQ(order_in(tasks, places, 1), " F0 F1B0 F2B1 F3B2 F4B3 B4");
  // Forward 1, backward 2: five micro-batches, the first one's forward, the last one's backward.
  double end = 0;
  for (const OrderedTask& each : order_tasks(tasks, places)) end = std::max(end, each.end);
  EXPECT_EQ(end, 1 + 5 * 3 + 2);
}

// Gradients of weights come when there is nothing else to do: here in the end.
TEST(OrderTasks, GradientsOfWeightsFillWhatWouldBeWaiting) {
  std::vector<StageTask> tasks = chain(2, 2);
  for (StageTask& task : tasks)
    if (task.region == 1 && task.pass == Pass::kBackward) task.work = 1;
  for (const std::size_t micro_batch : {0, 1}) {
    const std::size_t backward = 2 * (micro_batch * 2 + 1) + 1;
    tasks.push_back({1, micro_batch, Pass::kWeights, 1, {backward}});
  }
  std::string text;
  for (const OrderedTask& each : order_tasks(tasks, {{{0}, 2}, {{1}, 2}}))
    if (const std::size_t t = each.tasks.front(); tasks[t].region == 1)
      text += std::string("FBW")[static_cast<std::size_t>(tasks[t].pass)];
  EXPECT_EQ(text, "FFBBWW");
}

// One device has both ends: it does one thing at a time, in an order that never waits for itself.
TEST(OrderTasks, RegionsOfOneDeviceTakeTurns) {
  const std::vector<TaskPlace> places = {{{0}, 3}, {{1}, 2}, {{0}, 1}};
  const std::vector<StageTask> tasks = chain(3, 3);
  std::vector<bool> is_over(tasks.size(), false);
  for (const OrderedTask& each : order_tasks(tasks, places)) {
    const std::size_t t = each.tasks.front();
    for (const std::size_t need : tasks[t].needs) EXPECT_TRUE(is_over[need]);
    is_over[t] = true;
  }
}

/// Four stages in two seats, 1 forward and 2 backward, two micro-batches, no messages.
PipelineWork interleaved_work() {
  PipelineWork work;
  work.forward.assign(4, {1, 1});
  work.backward.assign(4, {2, 2});
  work.activation.assign(3, 0);
  work.gradient.assign(3, 0);
  work.most_in_flight.assign(4, 2);
  work.seats = {0, 1, 0, 1};
  return work;
}

std::string passes_in(const PassOrder& order) {
  std::string text;
  for (const StagePass& pass : order)
    text += std::string(pass.is_backward ? "B" : "F") + std::to_string(pass.micro) +
            static_cast<char>('a' + pass.stage) + " ";
  return text;
}

// The first seat has stages a and c. F0a and F1a end at 1 and 2; F0c needs F0b, which ends at 2;
// B0c needs B0d, which begins when the second seat has done F0d and F1d.
TEST(OrderPasses, InterleavedStagesTakeTheirForwardsFirst) {
  const std::vector<PassOrder> orders = order_passes(interleaved_work(), StageSchedule::kDeepList);
  ASSERT_EQ(orders.size(), 2u);
  EXPECT_EQ(passes_in(orders[0]), "F0a F1a F0c F1c B0c B1c B0a B1a ");
  EXPECT_EQ(passes_in(orders[1]), "F0b F1b F0d F1d B0d B1d B0b B1b ");
}

// Of two stages that take 1 and 2 each way, three micro-batches: 1F1B starts 2 and 1; the list with
// room for three starts a third forward, as the first backward of the second stage ends at 4.
TEST(OrderPasses, AListFillsTheWaitThat1F1BHas) {
  PipelineWork work;
  work.forward.assign(2, {1, 1, 1});
  work.backward.assign(2, {2, 2, 2});
  work.activation.assign(1, 0);
  work.gradient.assign(1, 0);
  work.most_in_flight = {3, 3};
  work.seats = {0, 1};
  EXPECT_EQ(launch_counts(work, StageSchedule::k1F1B), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(passes_in(order_passes(work, StageSchedule::k1F1B)[0]), "F0a F1a B0a F2a B1a B2a ");
  const PassOrder listed = order_passes(work, StageSchedule::kDeepList)[0];
  EXPECT_EQ(passes_in(listed), "F0a F1a F2a B0a B1a B2a ");
  EXPECT_EQ(in_flight(listed, 0), 3);
}

}  // namespace
}  // namespace motley::plan
