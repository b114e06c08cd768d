#include "motley/simulate/flow_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "motley/cost/links/collectives.h"

namespace motley::simulate {
namespace {

using cost::Flow;
using ::testing::ElementsAre;
using trace::Nanoseconds;

constexpr Nanoseconds kSecond = 1'000'000'000;

struct Start {
  Nanoseconds time = 0;
  Flow flow;
};

/// Returns the end of each start, ordered by time. Ends come before starts at the same time.
std::vector<Nanoseconds> run(FlowNetwork network, const std::vector<Start>& starts) {
  std::vector<Nanoseconds> ends(starts.size(), -1);
  std::map<std::int32_t, std::size_t> running;
  const auto end_until = [&](Nanoseconds time) {
    while (network.next_end() <= time && network.next_end() != FlowNetwork::kNever) {
      const Nanoseconds end = network.next_end();
      std::vector<std::int32_t> ended;
      network.end_next(ended);
      for (const std::int32_t flow : ended) {
        ends[running.at(flow)] = end;
        running.erase(flow);
      }
    }
  };
  for (std::size_t i = 0; i < starts.size(); ++i) {
    end_until(starts[i].time);
    running[network.start(starts[i].time, starts[i].flow)] = i;
  }
  end_until(FlowNetwork::kNever);
  return ends;
}

TEST(FlowNetwork, SharesALinkEvenly) {
  // The header's example.
  EXPECT_THAT(run(FlowNetwork({10}), {{0, {20, {{0}}}}, {0, {40, {{0}}}}}),
              ElementsAre(4 * kSecond, 6 * kSecond));
}

TEST(FlowNetwork, ALateFlowSlowsTheFirstDown) {
  // 10 bytes by 1 s, the other 20 at 5 B/s by 5 s; the second then has 10 left: 6 s.
  EXPECT_THAT(run(FlowNetwork({10}), {{0, {30, {{0}}}}, {kSecond, {30, {{0}}}}}),
              ElementsAre(5 * kSecond, 6 * kSecond));
}

TEST(FlowNetwork, GivesWhatACappedFlowLeavesToTheOthers) {
  // 2 B/s at most: the other two share 8 B/s. 16 / 4 = 4 s; then 10 - 8 = 2 are left at 2 B/s.
  EXPECT_THAT(run(FlowNetwork({10}), {{0, {10, {{0}}, 2}}, {0, {16, {{0}}}}, {0, {16, {{0}}}}}),
              ElementsAre(5 * kSecond, 4 * kSecond, 4 * kSecond));
}

TEST(FlowNetwork, ACapAboveTheShareDoesNothing) {
  EXPECT_THAT(run(FlowNetwork({10}), {{0, {10, {{0}}, 7}}, {0, {10, {{0}}}}}),
              ElementsAre(2 * kSecond, 2 * kSecond));
}

TEST(FlowNetwork, EqualRatesTakeLinksByWeight) {
  // 3 r + 1 r = 12: r = 3. The first takes 6 / 3 = 2 s; the second has 24 left at 12 B/s.
  EXPECT_THAT(run(FlowNetwork({12}), {{0, {6, {{0, 3}}}}, {0, {30, {{0, 1}}}}}),
              ElementsAre(2 * kSecond, 4 * kSecond));
  // The same link named twice adds up: 2 r = 12.
  EXPECT_THAT(run(FlowNetwork({12}), {{0, {6, {{0}, {0}}}}}), ElementsAre(kSecond));
}

TEST(FlowNetwork, AFlowGoesAtItsNarrowestLink) {
  // 4 B/s on the second link; a flow on the first alone gets the other 6.
  EXPECT_THAT(run(FlowNetwork({10, 4}), {{0, {8, {{0}, {1}}}}, {0, {12, {{0}}}}}),
              ElementsAre(2 * kSecond, 2 * kSecond));
}

TEST(FlowNetwork, IsFairThroughChains) {
  // Links of 10, 20 and 30 B/s; A crosses 0 and 1, B 0, C 1 and 2, D 2. Link 0 fills first: A = B =
  // 5. Links 1 and 2 fill together at 15 for C alone and for C and D: all take 3 s.
  EXPECT_THAT(
      run(FlowNetwork({10, 20, 30}),
          {{0, {15, {{0}, {1}}}}, {0, {15, {{0}}}}, {0, {45, {{1}, {2}}}}, {0, {45, {{2}}}}}),
      ElementsAre(3 * kSecond, 3 * kSecond, 3 * kSecond, 3 * kSecond));
}

TEST(FlowNetwork, TheClassicLineOfTwoLinks) {
  // One long flow over both links of 1 B/s, a short one on each: max-min gives 1/2 each
  // (proportional fairness would give the long one 1/3).
  FlowNetwork network({1, 1});
  const std::int32_t both = network.start(0, {1, {{0}, {1}}});
  const std::int32_t left = network.start(0, {1, {{0}}});
  const std::int32_t right = network.start(0, {1, {{1}}});
  EXPECT_EQ(network.rate(both), 0.5);
  EXPECT_EQ(network.rate(left), 0.5);
  EXPECT_EQ(network.rate(right), 0.5);
}

TEST(FlowNetwork, EndsTogetherInOrderOfStart) {
  FlowNetwork network({10, 5});
  const std::int32_t a = network.start(0, {20, {{0}}});
  const std::int32_t b = network.start(0, {10, {{1}}});
  const std::int32_t c = network.start(0, {20, {{0}}});
  EXPECT_EQ(network.next_end(), 2 * kSecond);
  std::vector<std::int32_t> ended;
  network.end_next(ended);
  EXPECT_THAT(ended, ElementsAre(b));
  EXPECT_EQ(network.next_end(), 4 * kSecond);
  network.end_next(ended);
  EXPECT_THAT(ended, ElementsAre(b, a, c));
  EXPECT_EQ(network.next_end(), FlowNetwork::kNever);
  network.end_next(ended);
  EXPECT_EQ(ended.size(), 3u);
}

TEST(FlowNetwork, StartsAtATimeWhenOthersEnd) {
  // The first is over at 1 s but not removed when the second starts, alone from then on.
  FlowNetwork network({10});
  const std::int32_t a = network.start(0, {10, {{0}}});
  EXPECT_EQ(network.next_end(), kSecond);
  const std::int32_t b = network.start(kSecond, {10, {{0}}});
  std::vector<std::int32_t> ended;
  EXPECT_EQ(network.next_end(), kSecond);
  network.end_next(ended);
  EXPECT_THAT(ended, ElementsAre(a));
  EXPECT_EQ(network.next_end(), 2 * kSecond);
  network.end_next(ended);
  EXPECT_THAT(ended, ElementsAre(a, b));
}

TEST(FlowNetwork, RoundsUpToANanosecond) {
  // 1 byte at 3 B/s: 333,333,333.3 ns. 3 bytes at 3e9 B/s: exactly 1 ns.
  EXPECT_THAT(run(FlowNetwork({3}), {{0, {1, {{0}}}}}), ElementsAre(333'333'334));
  EXPECT_THAT(run(FlowNetwork({3e9}), {{0, {3, {{0}}}}}), ElementsAre(1));
}

TEST(FlowNetwork, WhatNothingHoldsUpEndsAtOnce) {
  EXPECT_THAT(run(FlowNetwork({1}), {{5, {0, {{0}}}}, {6, {1e30, {}}}, {7, {2, {}, 2}}}),
              ElementsAre(5, 6, 7 + kSecond));
}

TEST(FlowNetwork, NumbersAreUsedAgain) {
  FlowNetwork network({1});
  std::vector<std::int32_t> ended;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(network.start(i, {0, {{0}}}), 0);
    network.end_next(ended);
  }
}

TEST(FlowNetwork, OnlyTakesWhatTheHeaderAllows) {
  EXPECT_DEATH(FlowNetwork({0}), "capacities");
  FlowNetwork network({1});
  EXPECT_DEATH(network.start(0, {1, {{1}}}), "links_");
  EXPECT_DEATH(network.start(0, {1, {{0, 0}}}), "weight");
  network.start(2, {1, {{0}}});
  EXPECT_DEATH(network.start(1, {1, {{0}}}), "now");
  EXPECT_DEATH(network.start(3 * kSecond, {1, {{0}}}), "now");
}

/// Raises all flows together, each round to the tightest link or cap, and fixes its flows.
std::vector<double> fair_rates(const std::vector<double>& capacities,
                               const std::vector<Flow>& flows) {
  std::vector<double> rates(flows.size(), -1);
  const auto known = [&](std::size_t f) { return rates[f] >= 0; };
  for (std::size_t fixed = 0; fixed < flows.size();) {
    double level = std::numeric_limits<double>::infinity();
    std::vector<double> level_of(capacities.size(), level);
    for (std::size_t l = 0; l < capacities.size(); ++l) {
      double left = capacities[l], weight = 0;
      for (std::size_t f = 0; f < flows.size(); ++f) {
        for (const cost::LinkUse& use : flows[f].uses) {
          if (use.link != static_cast<std::int32_t>(l)) continue;
          if (known(f)) left -= use.weight * rates[f];
          if (!known(f)) weight += use.weight;
        }
      }
      if (weight > 0) level_of[l] = left / weight;
      level = std::min(level, level_of[l]);
    }
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (!known(f) && flows[f].most_rate > 0) level = std::min(level, flows[f].most_rate);
    }
    std::vector<std::size_t> held;
    for (std::size_t f = 0; f < flows.size(); ++f) {
      if (known(f)) continue;
      bool holds = flows[f].most_rate > 0 && flows[f].most_rate <= level;
      for (const cost::LinkUse& use : flows[f].uses) {
        holds |= level_of[static_cast<std::size_t>(use.link)] <= level * (1 + 1e-12);
      }
      if (holds) held.push_back(f);
    }
    for (const std::size_t f : held) rates[f] = level;
    fixed += held.size();
  }
  return rates;
}

/// Computes ends by an event loop with every rate at every event; times in plain seconds.
std::vector<double> fair_ends(const std::vector<double>& capacities,
                              const std::vector<Start>& starts) {
  std::vector<double> ends(starts.size(), -1), left;
  for (const Start& start : starts) left.push_back(start.flow.bytes);
  double now = 0;
  for (std::size_t next = 0;;) {
    std::vector<std::size_t> running;
    std::vector<Flow> flows;
    for (std::size_t i = 0; i < next; ++i) {
      if (ends[i] >= 0) continue;
      running.push_back(i);
      flows.push_back(starts[i].flow);
    }
    if (running.empty() && next == starts.size()) return ends;
    const std::vector<double> rates = fair_rates(capacities, flows);
    const double infinity = std::numeric_limits<double>::infinity();
    const double start =
        next < starts.size() ? static_cast<double>(starts[next].time) * 1e-9 : infinity;
    double end = infinity;
    std::size_t first = 0;
    for (std::size_t k = 0; k < running.size(); ++k) {
      const double time = now + left[running[k]] / rates[k];
      if (time < end) first = running[k];
      end = std::min(end, time);
    }
    const double then = std::min(start, end);
    for (std::size_t k = 0; k < running.size(); ++k) left[running[k]] -= rates[k] * (then - now);
    now = then;
    if (end <= start) {
      ends[first] = now;
    } else {
      ++next;
    }
  }
}

/// Up to `links` links and `flows` flows of small whole numbers, so that ties are frequent.
struct Scene {
  std::vector<double> capacities;
  std::vector<Start> starts;
};
Scene draw_scene(int links, int flows) {
  Scene scene;
  const int link_count = *rc::gen::inRange(1, links + 1);
  for (int i = 0; i < link_count; ++i) scene.capacities.push_back(*rc::gen::inRange(1, 12));
  const int flow_count = *rc::gen::inRange(1, flows + 1);
  Nanoseconds time = 0;
  for (int i = 0; i < flow_count; ++i) {
    if (*rc::gen::inRange(0, 3) == 0) time += *rc::gen::inRange(1, 6) * kSecond / 2;
    Flow flow;
    flow.bytes = *rc::gen::inRange(1, 30);
    const int uses = *rc::gen::inRange(1, 4);
    for (int k = 0; k < uses; ++k) {
      const double weight = *rc::gen::element(0.5, 1.0, 1.0, 1.0, 1.75, 2.0);
      flow.uses.push_back({*rc::gen::inRange(0, link_count), weight});
    }
    if (*rc::gen::inRange(0, 4) == 0) flow.most_rate = *rc::gen::inRange(1, 10);
    scene.starts.push_back({time, flow});
  }
  return scene;
}

RC_GTEST_PROP(FlowNetworkProperty, EqualsProgressiveFillingFromNothing, ()) {
  const Scene scene = draw_scene(6, 12);
  const std::vector<double> expected = fair_ends(scene.capacities, scene.starts);
  const std::vector<Nanoseconds> ends = run(FlowNetwork(scene.capacities), scene.starts);
  for (std::size_t i = 0; i < ends.size(); ++i) {
    // Each event moves others by less than a nanosecond, amplified by ratios of rates.
    RC_ASSERT(std::abs(static_cast<double>(ends[i]) * 1e-9 - expected[i]) < 1e-6);
  }
}

RC_GTEST_PROP(FlowNetworkProperty, LinksHoldAndEachFlowHasABottleneck, ()) {
  const Scene scene = draw_scene(8, 20);
  FlowNetwork network(scene.capacities);
  std::vector<std::pair<std::int32_t, Flow>> running;
  for (const Start& start : scene.starts) {
    while (network.next_end() <= start.time) {
      std::vector<std::int32_t> ended;
      network.end_next(ended);
      std::erase_if(running, [&](const auto& flow) {
        return std::find(ended.begin(), ended.end(), flow.first) != ended.end();
      });
    }
    running.emplace_back(network.start(start.time, start.flow), start.flow);

    std::vector<double> load(scene.capacities.size(), 0), fastest(scene.capacities.size(), 0);
    for (const auto& [number, flow] : running) {
      for (const cost::LinkUse& use : flow.uses) {
        const auto link = static_cast<std::size_t>(use.link);
        load[link] += use.weight * network.rate(number);
        fastest[link] = std::max(fastest[link], network.rate(number));
      }
    }
    for (std::size_t l = 0; l < load.size(); ++l) {
      RC_ASSERT(load[l] <= scene.capacities[l] * (1 + 1e-9));
    }
    for (const auto& [number, flow] : running) {
      const double rate = network.rate(number);
      bool held = flow.most_rate > 0 && rate >= flow.most_rate;
      for (const cost::LinkUse& use : flow.uses) {
        const auto link = static_cast<std::size_t>(use.link);
        held |=
            load[link] >= scene.capacities[link] * (1 - 1e-9) && rate >= fastest[link] * (1 - 1e-9);
      }
      RC_ASSERT(held);
    }
  }
}

RC_GTEST_PROP(FlowNetworkProperty, DisjointFlowsDoNotMatter, ()) {
  // Two scenes side by side in one network end to the nanosecond as each alone.
  const Scene a = draw_scene(4, 8), b = draw_scene(4, 8);
  std::vector<double> capacities = a.capacities;
  capacities.insert(capacities.end(), b.capacities.begin(), b.capacities.end());
  struct Tagged {
    Start start;
    bool second = false;
  };
  std::vector<Tagged> both;
  for (const Start& start : a.starts) both.push_back({start, false});
  for (Start start : b.starts) {
    for (cost::LinkUse& use : start.flow.uses) {
      use.link += static_cast<std::int32_t>(a.capacities.size());
    }
    both.push_back({start, true});
  }
  std::stable_sort(both.begin(), both.end(),
                   [](const Tagged& x, const Tagged& y) { return x.start.time < y.start.time; });
  std::vector<Start> starts;
  for (const Tagged& tagged : both) starts.push_back(tagged.start);
  const std::vector<Nanoseconds> ends = run(FlowNetwork(capacities), starts);
  std::vector<Nanoseconds> of_a, of_b;
  for (std::size_t i = 0; i < both.size(); ++i) (both[i].second ? of_b : of_a).push_back(ends[i]);
  RC_ASSERT(of_a == run(FlowNetwork(a.capacities), a.starts));
  RC_ASSERT(of_b == run(FlowNetwork(b.capacities), b.starts));
}

RC_GTEST_PROP(FlowNetworkProperty, ScalesWithBytesAndCapacity, ()) {
  // Twice the bytes, caps and capacities: the same proportions, so the same ends.
  Scene scene = draw_scene(5, 10);
  const std::vector<Nanoseconds> ends = run(FlowNetwork(scene.capacities), scene.starts);
  for (double& capacity : scene.capacities) capacity *= 2;
  for (Start& start : scene.starts) {
    start.flow.bytes *= 2;
    start.flow.most_rate *= 2;
  }
  RC_ASSERT(run(FlowNetwork(scene.capacities), scene.starts) == ends);
}

TEST(FlowNetwork, DisjointAllReducesRunSideBySide) {
  // Pairs a-b and c-d on one switch: 2 * 1/2 * 4 MB at 1 MB/s each, both over after 4 s. With b-c
  // beside them, the NICs of b and c are shared and all three take 8 s.
  cluster::Cluster cluster;
  for (int n = 0; n < 4; ++n) {
    cluster.nodes.push_back({.name = std::string(1, static_cast<char>('a' + n))});
    cluster.devices.push_back({.node = NodeId(n), .name = "d"});
  }
  cluster.links.push_back({{}, BytesPerSecond(1e6), Seconds(0.0)});
  const cost::Network links(cluster);
  const auto all_reduce = [&](int from, int to) {
    const cost::CollectiveCall call =
        cost::even_call(cost::Collective::kAllReduce, {DeviceId(from), DeviceId(to)}, 4e6);
    return cost::build_transfer(links, call, cost::Algorithm::kRing, {}).phases[0].flows[0];
  };
  EXPECT_THAT(run(FlowNetwork(links.capacities()), {{0, all_reduce(0, 1)}, {0, all_reduce(2, 3)}}),
              ElementsAre(4 * kSecond, 4 * kSecond));
  EXPECT_THAT(run(FlowNetwork(links.capacities()),
                  {{0, all_reduce(0, 1)}, {0, all_reduce(2, 3)}, {0, all_reduce(1, 2)}}),
              ElementsAre(8 * kSecond, 8 * kSecond, 8 * kSecond));
}

/// Returns the seconds of a transfer's phases in sequence, alone on the links.
double time_alone(const std::vector<double>& capacities, const cost::Transfer& transfer) {
  FlowNetwork network(capacities);
  Nanoseconds now = 0;
  for (const cost::TransferPhase& phase : transfer.phases) {
    now += std::llround(phase.delay.value * 1e9);
    for (const Flow& flow : phase.flows) network.start(now, flow);
    std::vector<std::int32_t> ended;
    while (network.next_end() != FlowNetwork::kNever) {
      now = network.next_end();
      network.end_next(ended);
    }
  }
  return static_cast<double>(now) * 1e-9;
}

RC_GTEST_PROP(FlowNetworkProperty, MessagesThatAreIdenticalAreOneFlow, ()) {
  // Parts that differ negligibly are sent pair by pair, one flow each.
  using enum cost::Algorithm;
  using enum cost::Collective;
  cluster::Cluster cluster;
  const bool is_slow_inside = *rc::gen::arbitrary<bool>();
  const int node_count = *rc::gen::inRange(2, 6);
  for (int n = 0; n < node_count; ++n) {
    cluster.nodes.push_back({.name = std::string(1, static_cast<char>('a' + n))});
    if (*rc::gen::arbitrary<bool>()) cluster.nodes.back().bandwidth = BytesPerSecond(7e5);
    const auto kind = *rc::gen::element<std::string>("cpu", "a100-80g", "t4");
    const int each = *rc::gen::inRange(1, 4);
    for (int d = 0; d < each; ++d)
      cluster.devices.push_back({.node = NodeId(n), .name = "d", .kind = kind});
    if (kind == "cpu")
      cluster.links.push_back({{NodeId(n)}, BytesPerSecond(is_slow_inside ? 2e5 : 4e6), {}});
  }
  cluster.links.push_back({{}, BytesPerSecond(1e6), Seconds(1e-3), {}});
  if (*rc::gen::arbitrary<bool>()) cluster.links.back().capacity = BytesPerSecond(2e6);
  if (*rc::gen::arbitrary<bool>())
    cluster.links.push_back({{NodeId(0), NodeId(1)}, BytesPerSecond(3e6), Seconds(2e-3)});
  cost::CollectiveCall call;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    call.devices.emplace_back(static_cast<std::int64_t>(i));
  call.bytes.assign(call.devices.size(), 12e3);
  call.op = *rc::gen::element(kReduceScatter, kAllGather, kAllToAll);
  const auto algorithm = call.op == kAllToAll ? kDirect : *rc::gen::element(kDirect, kGrouped);
  const cost::Network network(cluster);
  const auto time = [&] {
    return time_alone(network.capacities(), cost::build_transfer(network, call, algorithm, {}));
  };
  const double even = time();
  call.bytes[0] *= 1 + 1e-9;
  RC_ASSERT(std::abs(time() - even) <= 1e-6 * even + 2e-9);
}

RC_GTEST_PROP(FlowNetworkProperty, CollectivesAloneTakeTheirIsolatedTime, ()) {
  // Equal nodes and parts at one switch: to a nanosecond per phase. Unequal ones: not faster.
  using enum cost::Algorithm;
  using enum cost::Collective;
  const int node_count = *rc::gen::inRange(1, 5), each = *rc::gen::inRange(1, 4);
  const bool is_even = *rc::gen::arbitrary<bool>();
  cluster::Cluster cluster;
  cost::CollectiveCall call;
  for (int n = 0; n < node_count; ++n) {
    cluster.nodes.push_back({.name = std::string(1, static_cast<char>('a' + n))});
    if (!is_even) cluster.nodes.back().bandwidth = BytesPerSecond(*rc::gen::inRange(1, 9) * 1e6);
    cluster.links.push_back({{NodeId(n)}, BytesPerSecond(4e6), Seconds(0.0)});
    for (int d = 0; d < each; ++d) {
      call.devices.emplace_back(static_cast<std::int64_t>(cluster.devices.size()));
      call.bytes.push_back(is_even ? 12e3 : *rc::gen::inRange(0, 30) * 1e3);
      cluster.devices.push_back({.node = NodeId(n), .name = "d"});
    }
  }
  cluster.links.push_back({{}, BytesPerSecond(1e6), Seconds(1e-3)});
  call.op = *rc::gen::element(kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll);
  const auto algorithm =
      *rc::gen::suchThat(rc::gen::element(kRing, kTree, kHalvingDoubling, kHierarchical, kDirect,
                                          kGrouped, kSeparate, kWhole),
                         [&](cost::Algorithm a) { return cost::is_applicable(a, call.op); });
  const cost::Network network(cluster);
  const cost::Transfer transfer = cost::build_transfer(network, call, algorithm, {});
  const double isolated = cost::isolated_time(transfer, network.capacities()).value;
  const double alone = time_alone(network.capacities(), transfer);
  RC_ASSERT(alone > isolated - 1e-9);
  const double noise = 1e-9 * static_cast<double>(transfer.phases.size() + 1);
  if (is_even) RC_ASSERT(alone < isolated + noise);
}

}  // namespace
}  // namespace motley::simulate
