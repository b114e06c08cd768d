#include "motley/simulate/ordered_run.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "motley/testing/task_graphs.h"

namespace motley::simulate {
namespace {

using Ends = std::vector<Nanoseconds>;

/// A device whose transfer lane slows its compute lane.
struct Device {
  LaneId compute, wire;
  Device(TaskGraphBuilder& builder, double factor)
      : compute(builder.add_lane()), wire(builder.add_lane()) {
    builder.slow(compute, wire, factor);
  }
};

// At 0.25 from 0 to 40: 40 / 1.25 = 32 of the 100 are done by 40, the other 68 by 108.
TEST(OrderedRun, ComputeIsSlowedWhileItsDeviceCommunicates) {
  TaskGraphBuilder builder;
  const Device device(builder, 0.25);
  builder.add(device.compute, 100);
  builder.add(device.wire, 40);
  const auto times = find_times(std::move(builder).build());
  ASSERT_TRUE(times);
  EXPECT_EQ(times->ends, (Ends{108, 40}));
  EXPECT_EQ(times->end, 108);
}

// A collective after b's first 20 ns: a reaches it at 0, but it runs from 20 to 60. At factor 1
// each loses half of 40: a's 100 end at 120. Of b's next 30, 20 are done by 60: 70.
TEST(OrderedRun, WaitingForMembersSlowsNobody) {
  TaskGraphBuilder builder;
  const Device a(builder, 1), b(builder, 1);
  builder.add(a.compute, 100);
  const TaskId first = builder.add(b.compute, 20);
  const TaskId sum = builder.add(a.wire, 40);
  builder.join(sum, b.wire);
  builder.depend(sum, first);
  builder.add(b.compute, 30);
  EXPECT_EQ(find_times(std::move(builder).build())->ends, (Ends{120, 20, 60, 70}));
}

// Compute delayed by one transfer delays the next: 0..40 beside work of 50, of which 20 are done
// then, ends at 70; the second transfer 70..110 beside the next 50: 20 by 110, all by 140.
TEST(OrderedRun, WhatIsSlowedDelaysWhatFollows) {
  TaskGraphBuilder builder;
  const Device device(builder, 1);
  const TaskId first = builder.add(device.compute, 50);
  builder.add(device.wire, 40);
  builder.depend(builder.add(device.wire, 40), first);
  builder.add(device.compute, 50);
  EXPECT_EQ(find_times(std::move(builder).build())->ends, (Ends{70, 40, 110, 140}));
}

// Two transfers of 100 bytes at 1e9 B/s from 0 and 50 share a link: 0..150 and 50..200. At factor 1
// beside the first, 75 are done by 150: work of 100 ends at 175.
TEST(OrderedRun, TransfersThatShareALinkSlowForLonger) {
  TaskGraphBuilder builder;
  builder.set_links({1e9});
  const TransferId flow = builder.add_transfer({{{Seconds(), {{100, {{0, 1.0}}, 0}}}}});
  const Device device(builder, 1);
  const LaneId other = builder.add_lane();
  builder.add(device.compute, 100);
  builder.add(device.wire, flow);
  builder.add(other, 50);
  builder.add(other, flow);
  EXPECT_EQ(find_times(std::move(builder).build())->ends, (Ends{175, 150, 50, 200}));
}

// Its own stretch halves the speed from 30 on, the transfer halves it from 0 to 40: 15 by 30, 2.5
// more by 40, and the other 32.5 of 50 at half speed by 105. It begins at 0 and not before `start`.
TEST(OrderedRun, PacesMultiply) {
  TaskGraphBuilder builder;
  const Device device(builder, 1);
  builder.add(device.compute, 50);
  builder.add(device.wire, 40);
  const TaskGraph graph = std::move(builder).build();
  EXPECT_EQ(find_times(graph, {.stretches = {{{30, 2}}, {}}})->ends, (Ends{105, 40}));
  EXPECT_EQ(find_times(graph, {.start = 7, .stretches = {{{37, 2}}, {}}})->ends, (Ends{112, 47}));
}

TEST(OrderedRun, OnlyWorkOfOneLaneIsSlowed) {
  TaskGraphBuilder builder;
  const Device device(builder, 3);
  const LaneId other = builder.add_lane();
  builder.join(builder.add(device.compute, 10), other);
  builder.add(device.wire, 10);
  builder.add(device.compute, 5);
  builder.add(device.wire, 0);
  EXPECT_EQ(find_times(std::move(builder).build())->ends, (Ends{10, 10, 15, 10}));
}

TEST(OrderedRun, ADeadlockIsNamedIdentical) {
  TaskGraphBuilder builder;
  const Device a(builder, 1), b(builder, 1);
  const TaskId first = builder.add(a.wire, 1), second = builder.add(b.wire, 1);
  builder.join(second, a.wire);
  builder.join(first, b.wire);
  builder.depend(builder.add(a.compute, 1), first);
  TaskGraph graph = std::move(builder).build();
  const auto describe = [](const Deadlock& deadlock) {
    return describe_deadlock(
        deadlock, [](LaneId lane) { return "L" + std::to_string(lane.value / 2); },
        [](LaneId, TaskId task) { return "T" + std::to_string(task.value); });
  };
  const auto times = find_times(graph);
  ASSERT_FALSE(times);
  EXPECT_EQ(describe(times.error()),
            "deadlock: L0 waits in T2 for its other lane, which waits in T0 for L1, which waits in "
            "T1 for L0");
  graph.interference.clear();
  EXPECT_EQ(describe(find_times(graph).error()), describe(times.error()));
}

/// Draws stretches; a third of the lanes have none.
std::vector<std::vector<Stretch>> draw_stretches(std::uint64_t seed, std::size_t lanes) {
  SplitMix64 random(seed);
  std::vector<std::vector<Stretch>> stretches(lanes);
  for (auto& pieces : stretches)
    for (std::uint64_t i = 0; i < random.below(3); ++i)
      pieces.push_back({static_cast<Nanoseconds>(100 * i + random.below(100)),
                        static_cast<double>(1 + random.below(4))});
  return stretches;
}

RC_GTEST_PROP(OrderedRun, WithoutSlowDownsEqualsLongestPaths, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  TaskGraph graph = draw_graph(seed, *rc::gen::inRange<std::size_t>(0, 60));
  if (*rc::gen::arbitrary<bool>()) graph = with_transfers(seed, std::move(graph));
  TimesOptions options{.start = *rc::gen::inRange<Nanoseconds>(0, 50)};
  if (*rc::gen::arbitrary<bool>()) options.stretches = draw_stretches(seed, graph.lanes());
  RC_ASSERT(run_in_order(graph, options).value() == find_times(graph, options).value());
}

/// Applies the rules nanosecond by nanosecond, for tasks of fixed durations. Factors are powers of
/// two less one, stretches powers of two, so that remaining work is exact.
class SlowRun {
 public:
  SlowRun(const TaskGraph& graph, const std::vector<std::vector<Stretch>>& stretches)
      : graph_(graph), stretches_(stretches), left_(graph.tasks()), next_(graph.lanes(), 0) {
    times_ = {Ends(graph.tasks(), 0), Ends(graph.tasks(), -1), 0};
    begun_.assign(graph.tasks(), false);
    stretch_.assign(graph.tasks(), 1);
  }

  TaskTimes run() {
    for (now_ = 0; !is_over(); ++now_) {
      do {
        end_what_is_due();
      } while (begin_what_can());
      for (std::size_t t = 0; t < graph_.tasks(); ++t)
        if (is_under_way(t)) left_[t] -= 1 / stretch_[t] / stretches_of(t);
    }
    return times_;
  }

 private:
  bool is_over() const {
    return std::all_of(times_.ends.begin(), times_.ends.end(), [](auto end) { return end >= 0; });
  }
  bool is_under_way(std::size_t t) const { return begun_[t] && times_.ends[t] < 0; }
  bool is_head(std::size_t lane, std::size_t t) const {
    return next_[lane] < graph_.tasks_of(lane).size() &&
           static_cast<std::size_t>(graph_.tasks_of(lane)[next_[lane]]) == t;
  }
  /// Returns the lane of a task in a single lane, else -1.
  int own_lane(std::size_t t) const {
    for (std::size_t lane = 0; lane < graph_.lanes(); ++lane)
      if (graph_.lane_counts[t] == 1 && is_head(lane, t)) return static_cast<int>(lane);
    return -1;
  }
  double stretches_of(std::size_t t) const {
    double factor = 1;
    if (const int lane = own_lane(t); lane >= 0)
      for (const Stretch& piece : stretches_[static_cast<std::size_t>(lane)])
        if (piece.from <= now_) factor = piece.factor;
    return factor;
  }
  bool is_busy(std::int32_t lane) const {
    for (std::size_t t = 0; t < graph_.tasks(); ++t)
      if (lane >= 0 && is_under_way(t) && is_head(static_cast<std::size_t>(lane), t)) return true;
    return false;
  }

  /// Ends to the nearest nanosecond, at the rates so far.
  void end_what_is_due() {
    std::vector<std::size_t> due;
    for (std::size_t t = 0; t < graph_.tasks(); ++t)
      if (is_under_way(t) && left_[t] * stretch_[t] * stretches_of(t) < 0.5) due.push_back(t);
    for (const std::size_t t : due) end(t);
  }
  void end(std::size_t t) {
    times_.ends[t] = times_.end = now_;
    for (std::size_t lane = 0; lane < graph_.lanes(); ++lane) next_[lane] += is_head(lane, t);
  }

  /// Begins, then sets new rates; true if something ends at once under them.
  bool begin_what_can() {
    for (bool found = true; found;) {
      found = false;
      for (std::size_t t = 0; t < graph_.tasks(); ++t)
        if (!begun_[t] && can_begin(t)) {
          begun_[t] = found = true;
          times_.begins[t] = now_;
          left_[t] = static_cast<double>(graph_.durations[t]);
          if (left_[t] == 0) end(t);
        }
    }
    bool ends_now = false;
    for (std::size_t t = 0; t < graph_.tasks(); ++t)
      if (const int lane = own_lane(t); is_under_way(t) && lane >= 0) {
        const auto& [by, factor] = graph_.interference[static_cast<std::size_t>(lane)];
        stretch_[t] = is_busy(by) ? 1 + factor : 1;
        ends_now = ends_now || left_[t] * stretch_[t] * stretches_of(t) < 0.5;
      }
    return ends_now;
  }
  bool can_begin(std::size_t t) const {
    int lanes = 0;
    for (std::size_t lane = 0; lane < graph_.lanes(); ++lane) lanes += is_head(lane, t);
    const auto on = graph_.dependencies_of(t);
    return lanes == graph_.lane_counts[t] && std::all_of(on.begin(), on.end(), [&](auto each) {
             return times_.ends[static_cast<std::size_t>(each)] >= 0;
           });
  }

  const TaskGraph& graph_;
  const std::vector<std::vector<Stretch>>& stretches_;
  std::vector<double> left_, stretch_;
  std::vector<bool> begun_;
  std::vector<std::size_t> next_;
  Nanoseconds now_ = 0;
  TaskTimes times_;
};

RC_GTEST_PROP(OrderedRun, EqualsTheRulesNanosecondByNanosecond, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const TaskGraph graph =
      with_interference(seed, draw_graph(seed, *rc::gen::inRange<std::size_t>(0, 15)), {0, 1, 3});
  std::vector<std::vector<Stretch>> stretches(graph.lanes());
  SplitMix64 random(seed);
  if (random.below(2) == 0)
    for (auto& pieces : stretches)
      pieces.push_back(
          {static_cast<Nanoseconds>(random.below(200)), random.below(2) == 0 ? 2.0 : 4.0});
  RC_CLASSIFY(has_interference(graph), "slowed");
  RC_ASSERT(find_times(graph, {.stretches = stretches}).value() == SlowRun(graph, stretches).run());
}

RC_GTEST_PROP(OrderedRun, RepeatedTasksOfOneUnitComeAfterAllOfItsLast, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const TaskGraph graph =
      with_interference(seed, draw_graph(seed, *rc::gen::inRange<std::size_t>(1, 40)), {0.1, 0.7});
  const std::vector<LaneOwners> units(graph.lanes());
  RC_ASSERT(find_times(repeat(graph, 3, units))->end == 3 * find_times(graph)->end);
}

}  // namespace
}  // namespace motley::simulate
