#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "motley/simulate/find_times.h"
#include "motley/testing/task_graphs.h"

namespace motley::simulate {
namespace {

using Ends = std::vector<Nanoseconds>;

cost::Transfer over(std::int32_t link, double bytes, double delay_s = 0) {
  return {{{Seconds(delay_s), {{bytes, {{link, 1.0}}, 0}}}}};
}

TEST(TaskGraph, FollowsTheExampleOfTheHeader) {
  TaskGraphBuilder builder;
  const LaneId a = builder.add_lane(), a_wire = builder.add_lane();
  const LaneId b = builder.add_lane(), b_wire = builder.add_lane();
  const TaskId a_back = builder.add(a, 100), b_back = builder.add(b, 130);
  const TaskId sum = builder.add(a_wire, 60);
  builder.join(sum, b_wire);
  for (const TaskId back : {a_back, b_back}) builder.depend(sum, back);
  for (const LaneId lane : {a, b}) builder.depend(builder.add(lane, 10), sum);
  const auto times = find_times(std::move(builder).build());
  ASSERT_TRUE(times);
  EXPECT_EQ(times->begins, (Ends{0, 0, 130, 190, 190}));
  EXPECT_EQ(times->ends, (Ends{100, 130, 190, 200, 200}));
  EXPECT_EQ(times->end, 200);
}

// A server takes pushes one after the other: workers compute for 10, 20 and 30 ns; each push takes
// 15 ns of the server. 10..25, 25..40, 40..55; each worker continues when its push is over.
TEST(TaskGraph, AServerIsALaneThatWorkersQueueAt) {
  TaskGraphBuilder builder;
  const LaneId server = builder.add_lane();
  for (const Nanoseconds compute : {10, 20, 30}) {
    const LaneId worker = builder.add_lane();
    builder.add(worker, compute);
    const TaskId push = builder.add(worker, 15);
    builder.join(push, server);
  }
  EXPECT_EQ(find_times(std::move(builder).build())->ends, (Ends{10, 25, 20, 40, 30, 55}));
}

// (micro-batches + stages - 1) x 10 = 40.
TEST(TaskGraph, APipelineFillsAndDrains) {
  TaskGraphBuilder builder;
  const LaneId first = builder.add_lane(), second = builder.add_lane();
  for (int i = 0; i < 3; ++i) {
    const TaskId forward = builder.add(first, 10);
    builder.depend(builder.add(second, 10), forward);
  }
  EXPECT_EQ(find_times(std::move(builder).build())->end, 40);
}

TEST(TaskGraph, NothingBeginsBeforeTheStart) {
  TaskGraphBuilder builder;
  const LaneId lane = builder.add_lane();
  builder.add(lane, 10);
  const TaskGraph graph = std::move(builder).build();
  EXPECT_EQ(find_times(graph, {.start = 7})->ends, Ends{17});
  EXPECT_EQ(find_times(TaskGraphBuilder().build(), {.start = 7})->end, 7);
}

// Two transfers of 100 bytes over one link of 1e9 B/s, from 0 and 50 ns: alone until 50 (50 bytes
// left), then half the rate each: the first ends at 150. The second has moved 50 by then and has 50
// left at the full rate: 200. Over two links each would take 100.
TEST(TaskGraph, TransfersShareALink) {
  const auto ends_with = [](std::int32_t second_link) {
    TaskGraphBuilder builder;
    builder.set_links({1e9, 1e9});
    const LaneId a = builder.add_lane(), b = builder.add_lane();
    builder.add(a, builder.add_transfer(over(0, 100)));
    builder.add(b, 50);
    builder.add(b, builder.add_transfer(over(second_link, 100)));
    builder.add(a, 5);
    return find_times(std::move(builder).build())->ends;
  };
  EXPECT_EQ(ends_with(0), (Ends{150, 50, 200, 155}));
  EXPECT_EQ(ends_with(1), (Ends{100, 50, 150, 105}));
}

// Two phases: 20 ns of delay and 30 bytes at 1 B/ns, then 10 ns of delay and two flows of 40 bytes
// at half the rate: 20 + 30 + 10 + 80 = 140. A third phase of only delay: 145.
TEST(TaskGraph, PhasesOfATransferFollowEachOther) {
  cost::Transfer transfer = over(0, 30, 20e-9);
  transfer.phases.push_back({Seconds(10e-9), {{40, {{0, 1.0}}, 0}, {40, {{0, 1.0}}, 0}}});
  transfer.phases.push_back({Seconds(5e-9), {}});
  TaskGraphBuilder builder;
  builder.set_links({1e9});
  const LaneId lane = builder.add_lane();
  builder.add(lane, builder.add_transfer(transfer));
  builder.add(lane, builder.add_transfer({{{Seconds(7e-9), {}}}}));
  EXPECT_EQ(find_times(std::move(builder).build())->ends, (Ends{145, 152}));
}

// At factor 2 from 30 to 50: work of 40 from 0: 30 done by 30, 10 more take 20: ends at 50. Work of
// 45: the last 5 at factor 1: 55. A task in two lanes is not slowed: 55..65.
TEST(TaskGraph, ALanesPaceStretchesItsOwnTasks) {
  const auto ends_of = [](Nanoseconds work) {
    TaskGraphBuilder builder;
    const LaneId a = builder.add_lane(), b = builder.add_lane();
    builder.add(a, work);
    builder.join(builder.add(a, 10), b);
    return find_times(std::move(builder).build(), {.stretches = {{{30, 2}, {50, 1}}, {{0, 100}}}})
        ->ends;
  };
  EXPECT_EQ(ends_of(40), (Ends{50, 60}));
  EXPECT_EQ(ends_of(45), (Ends{55, 65}));
  EXPECT_EQ(ends_of(20), (Ends{20, 30}));
}

std::string describe(const Deadlock& deadlock) {
  return describe_deadlock(
      deadlock, [](LaneId lane) { return "L" + std::to_string(lane.value / 2); },
      [](LaneId, TaskId task) { return "T" + std::to_string(task.value); });
}

TEST(TaskGraph, ADeadlockSaysWhoWaitsForWhom) {
  // Lanes 0 and 2 meet in T0 and T1, in different orders. Lane 1 waits for T0.
  TaskGraphBuilder builder;
  const LaneId a = builder.add_lane(), a_wire = builder.add_lane(), b = builder.add_lane();
  const TaskId first = builder.add(a, 1), second = builder.add(b, 1);
  builder.join(second, a);
  builder.join(first, b);
  builder.depend(builder.add(a_wire, 1), first);
  const auto times = find_times(std::move(builder).build());
  ASSERT_FALSE(times);
  EXPECT_EQ(describe(times.error()), "deadlock: L0 waits in T0 for L1, which waits in T1 for L0");
}

TEST(TaskGraph, ADeadlockThroughDependenciesNamesTheOtherLane) {
  TaskGraphBuilder builder;
  const LaneId compute = builder.add_lane(), wire = builder.add_lane();
  const TaskId first = builder.add(compute, 1), second = builder.add(wire, 1);
  builder.depend(first, second);
  builder.depend(second, first);
  const auto times = find_times(std::move(builder).build());
  ASSERT_FALSE(times);
  EXPECT_EQ(describe(times.error()),
            "deadlock: L0 waits in T0 for its other lane, which waits in T1 for its other lane");
}

TEST(TaskGraph, ATaskThatDependsOnItselfWaitsForItself) {
  TaskGraphBuilder builder;
  const TaskId task = builder.add(builder.add_lane(), 1);
  builder.depend(task, task);
  EXPECT_EQ(describe(find_times(std::move(builder).build()).error()),
            "deadlock: L0 waits in T0 for L0");
}

/// Finds the times by definition: raises them until nothing changes.
TaskTimes find_slowly(const TaskGraph& graph) {
  TaskTimes times{Ends(graph.tasks(), 0), graph.durations, 0};
  bool changes = true;
  const auto raise = [&](std::int32_t task, std::int32_t before) {
    const auto t = static_cast<std::size_t>(task);
    const Nanoseconds end = times.ends[static_cast<std::size_t>(before)];
    if (times.begins[t] >= end) return;
    times.begins[t] = end;
    times.ends[t] = end + graph.durations[t];
    changes = true;
  };
  while (changes) {
    changes = false;
    for (std::size_t t = 0; t < graph.tasks(); ++t)
      for (const std::int32_t on : graph.dependencies_of(t))
        raise(static_cast<std::int32_t>(t), on);
    for (std::size_t lane = 0; lane < graph.lanes(); ++lane)
      for (std::size_t i = 1; i < graph.tasks_of(lane).size(); ++i)
        raise(graph.tasks_of(lane)[i], graph.tasks_of(lane)[i - 1]);
  }
  for (const Nanoseconds end : times.ends) times.end = std::max(times.end, end);
  return times;
}

RC_GTEST_PROP(TaskGraph, TimesAreTheLeastThatKeepTheRules, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const TaskGraph graph = draw_graph(seed, *rc::gen::inRange<std::size_t>(0, 60));
  RC_ASSERT(find_times(graph).value() == find_slowly(graph));
}

RC_GTEST_PROP(TaskGraph, FixedTransfersTakeWhatTheyWouldWithALinkOfTheirOwn, ()) {
  // The same graph with every task a flow of its bytes over its own link of 1e9 B/s.
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  TaskGraph graph = draw_graph(seed, *rc::gen::inRange<std::size_t>(0, 40));
  const TaskTimes fixed = find_times(graph).value();
  for (std::size_t t = 0; t < graph.tasks(); ++t) {
    graph.transfers.push_back(
        over(static_cast<std::int32_t>(t), static_cast<double>(graph.durations[t])));
    graph.capacities.push_back(1e9);
    graph.durations[t] = -1 - static_cast<Nanoseconds>(t);
  }
  RC_ASSERT(find_times(graph).value() == fixed);
}

RC_GTEST_PROP(TaskGraph, RepeatedTasksOfOneUnitComeAfterAllOfItsLast, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const TaskGraph graph = draw_graph(seed, *rc::gen::inRange<std::size_t>(1, 40));
  // All lanes are one unit: whole copies follow each other.
  const std::vector<LaneOwners> units(graph.lanes());
  const TaskTimes once = find_times(graph).value(),
                  thrice = find_times(repeat(graph, 3, units)).value();
  RC_ASSERT(thrice.end == 3 * once.end);
  for (std::size_t t = 0; t < graph.tasks(); ++t)
    RC_ASSERT(thrice.ends[2 * graph.tasks() + t] == 2 * once.end + once.ends[t]);
}

}  // namespace
}  // namespace motley::simulate
