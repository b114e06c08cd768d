#include "motley/simulate/resimulation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "motley/testing/task_graphs.h"

namespace motley::simulate {
namespace {

// Two lanes of three tasks of 10 ns; T5, the last of lane 1, waits for T1: 0..10..20..30 in both.
TaskGraph two_lanes() {
  TaskGraphBuilder builder;
  const LaneId a = builder.add_lane(), b = builder.add_lane();
  for (int i = 0; i < 3; ++i) builder.add(a, 10);
  for (int i = 0; i < 3; ++i) builder.add(b, 10);
  builder.depend(TaskId(5), TaskId(1));
  return std::move(builder).build();
}

TEST(Resimulation, LooksOnlyAtWhatAChangeReaches) {
  Resimulation simulation = *Resimulation::start(two_lanes());
  EXPECT_EQ(simulation.end(), 30);
  // T1 takes 15: ends at 25. T2 25..35, T5 25..35. T0, T3 and T4 are not recomputed.
  simulation.set_duration(TaskId(1), 15);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(TaskId(2)), 35);
  EXPECT_EQ(simulation.end(TaskId(5)), 35);
  EXPECT_EQ(simulation.looked_at(), 3U);
}

TEST(Resimulation, StopsWhereTimesComeOutAsBefore) {
  Resimulation simulation = *Resimulation::start(two_lanes());
  // T4 takes 5: T5 still waits for T1 until 20, so nothing after T5 is recomputed.
  simulation.set_duration(TaskId(4), 5);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(TaskId(4)), 15);
  EXPECT_EQ(simulation.end(TaskId(5)), 30);
  EXPECT_EQ(simulation.looked_at(), 2U);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.looked_at(), 0U);
}

TEST(Resimulation, MovesTasksBetweenLanes) {
  Resimulation simulation = *Resimulation::start(two_lanes());
  // Lane 0 ends at 20; lane 1: T3 0..10, T1 10..30, T4 30..40, T5 40..50.
  simulation.move(TaskId(1), LaneId(0), LaneId(1), TaskId(4));
  simulation.set_duration(TaskId(1), 20);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(TaskId(2)), 20);
  EXPECT_EQ(simulation.begin(TaskId(1)), 10);
  EXPECT_EQ(simulation.end(TaskId(5)), 50);
  EXPECT_EQ(simulation.end(), 50);
  simulation.move(TaskId(1), LaneId(1), LaneId(0), TaskId(2));
  simulation.set_duration(TaskId(1), 10);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(), 30);
}

TEST(Resimulation, InsertsATransferBetweenLanes) {
  Resimulation simulation = *Resimulation::start(two_lanes());
  // After T0 and T3, 7 ns on both lanes: 10..17. T1, T4 17..27, T2, T5 27..37.
  const TaskId transfer = simulation.insert(LaneId(0), TaskId(1), 7);
  simulation.join(transfer, LaneId(1), TaskId(4));
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.begin(transfer), 10);
  EXPECT_EQ(simulation.end(), 37);
  simulation.remove(transfer);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(), 30);
}

TEST(Resimulation, SaysWhoWaitsForWhomAndGoesOnWhenThatIsOver) {
  Resimulation simulation = *Resimulation::start(two_lanes());
  simulation.depend(TaskId(0), TaskId(5));  // T5 waits for T1, which comes after T0
  const auto update = simulation.update();
  ASSERT_FALSE(update);
  EXPECT_EQ(describe_deadlock(
                update.error(), [](LaneId lane) { return "L" + std::to_string(lane.value); },
                [](LaneId, TaskId task) { return "T" + std::to_string(task.value); }),
            "deadlock: L0 waits in T0 for L1, which waits in T5 for L0");
  EXPECT_EQ(simulation.end(), 30);
  simulation.release(TaskId(0), TaskId(5));
  simulation.set_duration(TaskId(0), 12);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(), 32);
}

TEST(Resimulation, RunsAgainAsAWholeWhereTransfersShareLinks) {
  // Two flows of 100 bytes at 1e9 B/s: 200 if both begin at 0, else 150 and 200.
  TaskGraphBuilder builder;
  builder.set_links({1e9});
  const TransferId flow = builder.add_transfer({{{Seconds(), {{100, {{0, 1.0}}, 0}}}}});
  const LaneId a = builder.add_lane(), b = builder.add_lane();
  const TaskId first = builder.add(a, flow), wait = builder.add(b, 0);
  const TaskId second = builder.add(b, flow);
  Resimulation simulation = *Resimulation::start(std::move(builder).build());
  EXPECT_EQ(simulation.end(first), 200);
  simulation.set_duration(wait, 50);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(first), 150);
  EXPECT_EQ(simulation.end(second), 200);
}

/// Edits a graph at random, also into deadlocks.
class Editor {
 public:
  Editor(std::uint64_t seed, const TaskGraph& graph) : random_(seed), lanes_(graph.lanes()) {
    for (std::size_t t = 0; t < graph.tasks(); ++t) alive_.emplace_back(t);
  }

  void edit(Resimulation& simulation) {
    const TaskGraph graph = simulation.graph();
    switch (random_.below(6)) {
      case 0:
        if (const TaskId task = draw_task(); graph.durations[task.index()] >= 0)
          simulation.set_duration(task, draw_duration());
        return;
      case 1:
        return move(simulation, graph);
      case 2: {
        const std::size_t lane = random_.below(lanes_);
        const TaskId task = simulation.insert(id(lane), draw_place(graph, lane), draw_duration());
        alive_.push_back(task);
        return;
      }
      case 3:
        return remove(simulation);
      case 4: {
        TaskId task = draw_task(), on = draw_task();  // mostly no cycle
        if (simulation.begin(task) < simulation.begin(on) && random_.below(64) > 0)
          std::swap(task, on);
        return simulation.depend(task, on);
      }
      default:
        return release(simulation, graph);
    }
  }

 private:
  static LaneId id(std::size_t lane) { return LaneId(static_cast<std::int64_t>(lane)); }
  TaskId draw_task() { return alive_[random_.below(alive_.size())]; }
  Nanoseconds draw_duration() { return static_cast<Nanoseconds>(random_.below(100)); }

  /// Returns a task of the lane, or none.
  TaskId draw_place(const TaskGraph& graph, std::size_t lane) {
    const auto tasks = graph.tasks_of(lane);
    const std::size_t place = random_.below(tasks.size() + 1);
    return place == tasks.size() ? TaskId() : TaskId(tasks[place]);
  }

  bool is_in(const TaskGraph& graph, TaskId task, std::size_t lane) {
    const auto tasks = graph.tasks_of(lane);
    return std::find(tasks.begin(), tasks.end(), task.value) != tasks.end();
  }

  void move(Resimulation& simulation, const TaskGraph& graph) {
    const TaskId task = draw_task();
    const std::size_t from = random_.below(lanes_), to = random_.below(lanes_);
    const TaskId before = draw_place(graph, to);
    if (!is_in(graph, task, from) || before == task || (to != from && is_in(graph, task, to)))
      return;
    simulation.move(task, id(from), id(to), before);
  }

  void remove(Resimulation& simulation) {
    if (alive_.size() == 1) return;
    const std::size_t index = random_.below(alive_.size());
    simulation.remove(alive_[index]);
    alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  void release(Resimulation& simulation, const TaskGraph& graph) {
    const TaskId task = draw_task();
    const auto on = graph.dependencies_of(task.index());
    if (!on.empty()) simulation.release(task, TaskId(on[random_.below(on.size())]));
  }

  SplitMix64 random_;
  std::size_t lanes_;
  std::vector<TaskId> alive_;
};

/// Edits a graph, updates, and compares with a full run, 20 times; starts over when a deadlock
/// persists. Returns the number of updates without deadlock.
int compare_with_full_runs(std::uint64_t seed, const TaskGraph& graph) {
  Resimulation simulation = *Resimulation::start(graph);
  Editor editor(seed, graph);
  SplitMix64 random(seed + 1);
  int updates = 0, deadlocks = 0;
  for (int round = 0; round < 20; ++round) {
    if (deadlocks == 3) {
      simulation = *Resimulation::start(graph);
      editor = Editor(random.next(), graph);
      deadlocks = 0;
    }
    for (std::uint64_t edits = random.below(4); edits > 0; --edits) editor.edit(simulation);
    const TaskGraph now = simulation.graph();
    const auto full = find_times(now);
    const auto update = simulation.update();
    RC_ASSERT(update.has_value() == full.has_value());
    deadlocks = full ? 0 : deadlocks + 1;
    if (!full) continue;
    ++updates;
    RC_ASSERT(simulation.end() == full->end);
    for (std::size_t t = 0; t < now.tasks(); ++t) {
      if (now.lane_counts[t] == 0) continue;
      const TaskId task(static_cast<std::int64_t>(t));
      RC_ASSERT(simulation.begin(task) == full->begins[t]);
      RC_ASSERT(simulation.end(task) == full->ends[t]);
    }
  }
  return updates;
}

RC_GTEST_PROP(Resimulation, EqualsAFullRunAfterAnyEdits, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const TaskGraph graph = draw_graph(seed, *rc::gen::inRange<std::size_t>(1, 80));
  RC_CLASSIFY(compare_with_full_runs(seed, graph) > 10, "more than half of the updates ran");
}

RC_GTEST_PROP(Resimulation, EqualsAFullRunWhereTransfersShareLinks, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const TaskGraph graph =
      with_transfers(seed, draw_graph(seed, *rc::gen::inRange<std::size_t>(1, 60)));
  RC_CLASSIFY(compare_with_full_runs(seed, graph) > 10, "more than half of the updates ran");
}

RC_GTEST_PROP(Resimulation, EqualsAFullRunWhereLanesSlowEachOther, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  TaskGraph graph = draw_graph(seed, *rc::gen::inRange<std::size_t>(1, 60));
  if (*rc::gen::arbitrary<bool>()) graph = with_transfers(seed, std::move(graph));
  graph = with_interference(seed, std::move(graph), {0.3, 2});
  RC_CLASSIFY(compare_with_full_runs(seed, graph) > 10, "more than half of the updates ran");
}

TEST(Resimulation, WithSharedLinksKeepsWhatEndedBeforeTheFirstEffect) {
  // Transfers 0..100 and 100..200, a task 200..210 that gets longer: only that is run again.
  TaskGraphBuilder builder;
  builder.set_links({1e9});
  const TransferId flow = builder.add_transfer({{{Seconds(), {{100, {{0, 1.0}}, 0}}}}});
  const LaneId lane = builder.add_lane();
  builder.add(lane, flow);
  builder.add(lane, flow);
  const TaskId last = builder.add(lane, 10);
  Resimulation simulation = *Resimulation::start(std::move(builder).build());
  simulation.set_duration(last, 30);
  ASSERT_TRUE(simulation.update());
  EXPECT_EQ(simulation.end(), 230);
  EXPECT_EQ(simulation.looked_at(), 1U);
}

}  // namespace
}  // namespace motley::simulate
