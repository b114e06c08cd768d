#include "motley/cost/links/collectives.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>

namespace motley::cost {
namespace {

using enum Algorithm;
using enum Collective;
using ::testing::ElementsAre;

constexpr double kPort = 1e9, kLocalPort = 4e9;  // bytes/s
constexpr Transport kTransport{Seconds(1e-6)};   // per message
constexpr double kBytes = 24e6, kStep = 1e-6;    // 24 ms through a port

/// Makes `nodes[i]` devices on node i, all nodes on one switch, the devices of each on another.
Network network_of(const std::vector<int>& nodes) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"t\"\n";
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    text += fmt::format("[[node]]\nname = \"n{}\"\n[[node.device]]\nkind = \"cpu\"\ncount = {}\n",
                        i, nodes[i]);
  }
  if (nodes.size() > 1) text += fmt::format("[[link]]\nall = true\nbandwidth = {}\n", kPort);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    text += fmt::format("[[link]]\nbetween = [\"n{}\"]\nbandwidth = {}\n", i, kLocalPort);
  }
  auto cluster = cluster::parse_cluster(text, "t");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return Network(*cluster);
}

std::vector<DeviceId> first(int n) {
  std::vector<DeviceId> devices;
  for (int i = 0; i < n; ++i) devices.emplace_back(i);
  return devices;
}

/// Returns the seconds of a call among n single-device nodes.
double flat(Collective op, Algorithm algorithm, const std::vector<double>& bytes,
            std::size_t root = 0) {
  const int n = static_cast<int>(bytes.size());
  const Network network = network_of(std::vector<int>(bytes.size(), 1));
  const CollectiveCall call{op, first(n), bytes, root};
  return isolated_time(build_transfer(network, call, algorithm, kTransport), network.capacities())
      .value;
}
double flat(Collective op, Algorithm algorithm, int n) {
  return flat(op, algorithm, even_call(op, first(n), kBytes).bytes);
}

/// Returns the seconds of a call among all devices of such nodes; without `parts` of kBytes evenly.
double nested(Collective op, Algorithm algorithm, const std::vector<int>& nodes,
              std::vector<double> parts = {}) {
  const Network network = network_of(nodes);
  const int n = std::accumulate(nodes.begin(), nodes.end(), 0);
  CollectiveCall call = even_call(op, first(n), kBytes);
  if (!parts.empty()) call.bytes = std::move(parts);
  return isolated_time(build_transfer(network, call, algorithm, kTransport), network.capacities())
      .value;
}

TEST(Collectives, RingAllReduceMovesEachPartTwiceAround) {
  // 2 (n - 1) steps of 24 ms / n each: 2 ranks 2 * 12 ms, 4 ranks 6 * 6 ms.
  EXPECT_NEAR(flat(kAllReduce, kRing, 2), 24e-3 + 2 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllReduce, kRing, 4), 36e-3 + 6 * kStep, 1e-12);
  EXPECT_EQ(flat(kAllReduce, kRing, 1), 0);
}

TEST(Collectives, RingAllReduceIsOneFlow) {
  // Each NIC once out (even links) and once in (odd links), with 2 * 2/3 of the bytes.
  const Network network = network_of({1, 1, 1});
  const Transfer transfer =
      build_transfer(network, even_call(kAllReduce, first(3), 3e6), kRing, kTransport);
  ASSERT_EQ(transfer.phases.size(), 1u);
  EXPECT_DOUBLE_EQ(transfer.phases[0].delay.value, 4e-6);
  ASSERT_EQ(transfer.phases[0].flows.size(), 1u);
  EXPECT_DOUBLE_EQ(transfer.phases[0].flows[0].bytes, 4e6);
  EXPECT_THAT(transfer.phases[0].flows[0].uses,
              ElementsAre(LinkUse{0}, LinkUse{1}, LinkUse{2}, LinkUse{3}, LinkUse{4}, LinkUse{5}));
}

TEST(Collectives, RingThatLeavesANodeTwiceTakesItsNicTwice) {
  // Ranks n0:0, n1:0, n0:1, n1:1 in this order: each node is left twice. 2 * 3/4 * 24 ms * 2.
  const Network network = network_of({2, 2});
  CollectiveCall call = even_call(kAllReduce, first(4), kBytes);
  std::swap(call.devices[1], call.devices[2]);
  const Transfer transfer = build_transfer(network, call, kRing, kTransport);
  EXPECT_NEAR(isolated_time(transfer, network.capacities()).value, 72e-3 + 6 * kStep, 1e-12);
}

TEST(Collectives, RingReduceScatterAndAllGatherGoAroundOnce) {
  EXPECT_NEAR(flat(kReduceScatter, kRing, 4), 18e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllGather, kRing, 4), 18e-3 + 3 * kStep, 1e-12);
}

TEST(Collectives, RingPadsUnevenParts) {
  // Each of 3 steps moves as much as the largest, 12 ms.
  EXPECT_NEAR(flat(kAllGather, kRing, {12e6, 6e6, 6e6, 0}), 36e-3 + 3 * kStep, 1e-12);
}

TEST(Collectives, GroupedBroadcastsMoveEachPartOnceOverEachLink) {
  // The link into the third rank carries all but that rank's 2 ms: 22 ms.
  EXPECT_NEAR(flat(kAllGather, kGrouped, {12e6, 6e6, 2e6, 4e6}), 22e-3 + 3 * kStep, 1e-12);
  // Reductions: the link out of the third carries all parts but its own.
  EXPECT_NEAR(flat(kReduceScatter, kGrouped, {12e6, 6e6, 2e6, 4e6}), 22e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllGather, kGrouped, 4), 18e-3 + 3 * kStep, 1e-12);
  // A rank without bytes starts no broadcast.
  const Network network = network_of({1, 1});
  EXPECT_EQ(build_transfer(network, {kAllGather, first(2), {5, 0}}, kGrouped, kTransport)
                .phases[0]
                .flows.size(),
            1u);
}

TEST(Collectives, DirectSendsJustWhatIsThere) {
  // All-gather: the first rank sends 12 ms to each of three.
  EXPECT_NEAR(flat(kAllGather, kDirect, {12e6, 6e6, 2e6, 4e6}), 36e-3 + 3 * kStep, 1e-12);
  // Reduce-scatter: it receives the same from each.
  EXPECT_NEAR(flat(kReduceScatter, kDirect, {12e6, 6e6, 2e6, 4e6}), 36e-3 + 3 * kStep, 1e-12);
  // All-to-all: of the first rank's 12 ms the others get 12/24.
  EXPECT_NEAR(flat(kAllToAll, kDirect, {12e6, 6e6, 2e6, 4e6}), 6e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllToAll, kDirect, 4), 4.5e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kSend, kDirect, {24e6, 0}), 24e-3 + kStep, 1e-12);
  const Transfer parts =
      build_transfer(network_of({1, 1, 1}), {kAllGather, first(3), {5, 0, 1}}, kDirect, kTransport);
  EXPECT_EQ(parts.phases.at(0).flows.size(), 1u);
}

TEST(Collectives, SeparateBroadcastsComeOneAfterTheOther) {
  // Three ranks: two rounds per part, 2 * 24 ms in all.
  EXPECT_NEAR(flat(kAllGather, kSeparate, {12e6, 8e6, 4e6}), 48e-3 + 6 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllGather, kSeparate, 4), 48e-3 + 8 * kStep, 1e-12);
}

TEST(Collectives, WholeReduceScatterIsAnAllReduce) {
  EXPECT_NEAR(flat(kReduceScatter, kWhole, 4), 36e-3 + 6 * kStep, 1e-12);
}

TEST(Collectives, Broadcasts) {
  // A chain passes all bytes through each link; a binomial tree in ceil(log2 5) = 3 rounds.
  EXPECT_NEAR(flat(kBroadcast, kRing, {0, kBytes, 0, 0}, 1), 24e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kBroadcast, kTree, {0, 0, 0, 0, kBytes}, 4), 72e-3 + 3 * kStep, 1e-12);
}

TEST(Collectives, TwoTreesLoadNoPortTwice) {
  // 2 ranks: half goes up and half down each way. 3 ranks: 2 of 3 are inner nodes, 3/2. From 4 on
  // an inner node with two children sends them half each and two halves up: 2.
  EXPECT_NEAR(flat(kAllReduce, kTree, 2), 24e-3 + 2 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllReduce, kTree, 3), 36e-3 + 4 * kStep, 1e-12);
  for (const auto& [n, depth] :
       {std::pair{4, 2}, {5, 3}, {6, 3}, {7, 3}, {8, 3}, {9, 4}, {15, 4}, {16, 4}, {33, 6}}) {
    EXPECT_NEAR(flat(kAllReduce, kTree, n), 48e-3 + 2 * depth * kStep, 1e-12) << n;
  }
  // One node of 4: both trees are the chain, up and down, 2 * 24 / 4 ms, three hops deep.
  EXPECT_NEAR(nested(kAllReduce, kTree, {4}), 12e-3 + 6 * kStep, 1e-12);
}

TEST(Collectives, TreesKeepToTheRateOfAStream) {
  // At most 0.25e9 B/s between two ranks. The trees of four share the edge between 1 and 2, which
  // carries all 24 MB each way, 96 ms; so does a chain; the ring's hops carry 2 * 3/4 of the bytes.
  const Transport slow{.most_rate = 0.25e9};
  const auto time = [&](const Network& network, Algorithm algorithm) {
    const CollectiveCall call = even_call(kAllReduce, first(4), kBytes);
    return isolated_time(build_transfer(network, call, algorithm, slow), network.capacities())
        .value;
  };
  EXPECT_NEAR(time(network_of({1, 1, 1, 1}), kTree), 96e-3, 1e-12);
  EXPECT_NEAR(time(network_of({4}), kTree), 96e-3, 1e-12);
  EXPECT_NEAR(time(network_of({4}), kRing), 144e-3, 1e-12);
}

TEST(Collectives, HalvingDoublingTakesLogSteps) {
  EXPECT_NEAR(flat(kAllReduce, kHalvingDoubling, 8), 42e-3 + 6 * kStep, 1e-12);
  EXPECT_NEAR(flat(kReduceScatter, kHalvingDoubling, 8), 21e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kAllGather, kHalvingDoubling, 8), 21e-3 + 3 * kStep, 1e-12);
  // 3 ranks: the third sends all 24 ms to the first, two halves are exchanged, and back.
  EXPECT_NEAR(flat(kAllReduce, kHalvingDoubling, 3), 72e-3 + 4 * kStep, 1e-12);
  // All-gather of 8 ms each: 8 ms, then blocks of two parts, then all 24 ms.
  EXPECT_NEAR(flat(kAllGather, kHalvingDoubling, 3), 48e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(flat(kReduceScatter, kHalvingDoubling, 3), 48e-3 + 3 * kStep, 1e-12);
}

TEST(Collectives, HierarchyUsesEachNicOnceForANode) {
  // 3 nodes of 4 with ports of 6 ms inside. All-reduce: 2 * 3/4 * 6 ms, 2 * 2/3 * 24 ms over the
  // NIC, which four rings share; the flat ring takes 2 * 11/12 * 24 ms.
  EXPECT_NEAR(nested(kAllReduce, kHierarchical, {4, 4, 4}), 9e-3 + 32e-3 + 10 * kStep, 1e-12);
  EXPECT_NEAR(nested(kAllReduce, kRing, {4, 4, 4}), 44e-3 + 22 * kStep, 1e-12);
  EXPECT_NEAR(nested(kAllGather, kHierarchical, {4, 4, 4}), 4.5e-3 + 16e-3 + 5 * kStep, 1e-12);
  EXPECT_NEAR(nested(kReduceScatter, kHierarchical, {4, 4, 4}), 4.5e-3 + 16e-3 + 5 * kStep, 1e-12);
  EXPECT_NEAR(nested(kBroadcast, kHierarchical, {4, 4, 4}), 24e-3 + 6e-3 + 5 * kStep, 1e-12);
  // Each rank holds 2 MB: 3/4 of it inside at 4 GB/s, then 2/3 of four ranks' over their NIC.
  EXPECT_NEAR(nested(kAllToAll, kHierarchical, {4, 4, 4}), 0.375e-3 + 16e-3 / 3 + 5 * kStep, 1e-12);
  EXPECT_EQ(nested(kAllToAll, kHierarchical, {2, 4}), nested(kAllToAll, kDirect, {2, 4}));
}

TEST(Collectives, HierarchyOfUnequalNodesGoesByFirstRanks) {
  // 2 and 4 ranks: all 6 ms up the chain (3 hops), 2 * 1/2 * 24 ms across, 6 ms down.
  EXPECT_NEAR(nested(kAllReduce, kHierarchical, {2, 4}), 6e-3 + 24e-3 + 6e-3 + 8 * kStep, 1e-12);
  // Parts of 1 ms inside: 3 into the first rank of the second node; its 16 ms across; 6 ms down.
  EXPECT_NEAR(nested(kAllGather, kHierarchical, {2, 4}), 3e-3 + 16e-3 + 6e-3 + 7 * kStep, 1e-12);
  EXPECT_NEAR(nested(kReduceScatter, kHierarchical, {2, 4}), 6e-3 + 16e-3 + 3e-3 + 7 * kStep,
              1e-12);
}

TEST(Collectives, HierarchyMovesUnevenPartsAsTheyAre) {
  // All 24 ms of bytes are one rank's, of three nodes of two: inside, its place gets them from the
  // other in a quarter of the time; then two nodes' come over its NIC.
  EXPECT_NEAR(nested(kReduceScatter, kHierarchical, {2, 2, 2}, {24e6, 0, 0, 0, 0, 0}),
              6e-3 + 48e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(nested(kAllGather, kHierarchical, {2, 2, 2}, {24e6, 0, 0, 0, 0, 0}),
              6e-3 + 48e-3 + 3 * kStep, 1e-12);
  EXPECT_NEAR(nested(kReduceScatter, kDirect, {2, 2, 2}, {24e6, 0, 0, 0, 0, 0}), 96e-3 + 5 * kStep,
              1e-12);
}

TEST(Collectives, TheSlowestLinkAndLatencyCount) {
  auto cluster = cluster::parse_cluster(
      "schema = \"motley.cluster/1\"\nname = \"t\"\n"
      "[[node]]\nname = \"a\"\n[[node.device]]\nkind = \"cpu\"\n"
      "[[node]]\nname = \"b\"\n[[node.device]]\nkind = \"cpu\"\n"
      "[[node]]\nname = \"c\"\n[[node.device]]\nkind = \"cpu\"\n"
      "[[link]]\nall = true\nbandwidth = 1e9\nlatency = 1e-5\n"
      "[[link]]\nbetween = [\"a\", \"b\"]\nbandwidth = 4e9\nlatency = 2e-6\n",
      "t");
  ASSERT_TRUE(cluster);
  const Network network(*cluster);
  // b-c and c-a use the switch: 4 steps of 8 ms and of 1 + 10 us.
  const Transfer ring =
      build_transfer(network, even_call(kAllReduce, first(3), kBytes), kRing, kTransport);
  EXPECT_NEAR(isolated_time(ring, network.capacities()).value, 32e-3 + 4 * 11e-6, 1e-12);
  // Two rounds of a broadcast from a: to b in 6 ms and 3 us, then a to c in 24 ms and 11 us.
  const Transfer tree =
      build_transfer(network, {kBroadcast, first(3), {kBytes, 0, 0}}, kTree, kTransport);
  EXPECT_NEAR(isolated_time(tree, network.capacities()).value, 30e-3 + 14e-6, 1e-12);
}

TEST(Collectives, TheEndsCostTheirShareOnce) {
  // 100 us and, at 0.1 ns per byte, 2.4 ms for the 24 MB held; an all-to-all holds a quarter.
  const Transport ends{Seconds(0.0), 0, Seconds(100e-6), 0.1e-9};
  const Network network = network_of({1, 1, 1, 1});
  const auto time = [&](Collective op, Algorithm algorithm) {
    const CollectiveCall call = even_call(op, first(4), kBytes);
    return isolated_time(build_transfer(network, call, algorithm, ends), network.capacities())
        .value;
  };
  EXPECT_NEAR(time(kAllReduce, kRing), 36e-3 + 2.5e-3, 1e-12);
  EXPECT_NEAR(time(kAllGather, kSeparate), 48e-3 + 2.5e-3, 1e-12);
  EXPECT_NEAR(time(kBroadcast, kRing), 24e-3 + 2.5e-3, 1e-12);
  EXPECT_NEAR(time(kAllToAll, kDirect), 4.5e-3 + 0.7e-3, 1e-12);
  // A launch costs even without bytes.
  const Transfer empty = build_transfer(network, {kAllGather, first(2), {0, 0}}, kDirect, ends);
  EXPECT_NEAR(isolated_time(empty, network.capacities()).value, 100e-6, 1e-12);
}

TEST(Collectives, TheBestDependsOnSizeAndSkew) {
  const Network network = network_of(std::vector<int>(16, 1));
  const auto best = [&](const CollectiveCall& call, Backend backend) {
    return best_algorithm(network, call, kTransport, backend_algorithms(backend, call.op))
        .algorithm;
  };
  // 16 ranks: ring 30 us + 1.875 B/b, tree 8 us + 2 B/b: equal at 22 us / 0.125 = 176 us, 176 kB.
  EXPECT_EQ(best(even_call(kAllReduce, first(16), 170e3), Backend::kNccl), kTree);
  EXPECT_EQ(best(even_call(kAllReduce, first(16), 180e3), Backend::kNccl), kRing);
  EXPECT_EQ(best(even_call(kAllReduce, first(16), 170e3), Backend::kGloo), kRing);
  // Skewed parts: neither padded (3 * 20 ms) nor by separate broadcasts (2 * 24 ms).
  const CollectiveCall skewed{kAllGather, first(4), {20e6, 2e6, 1e6, 1e6}};
  const auto fastest = [&](const std::vector<Algorithm>& algorithms) {
    return best_algorithm(network, skewed, kTransport, algorithms).algorithm;
  };
  EXPECT_EQ(fastest({kRing, kDirect, kSeparate}), kSeparate);
  EXPECT_EQ(fastest({kRing, kDirect, kSeparate, kGrouped}), kGrouped);
}

TEST(Collectives, AMethodNamesItsAlgorithms) {
  using enum ExchangeMethod;
  const auto of = [](Backend backend, Collective op, ExchangeMethod method) {
    return backend_algorithms(backend, op, method);
  };
  EXPECT_EQ(of(Backend::kGloo, kAllGather, kNative), std::vector{kDirect});
  EXPECT_EQ(of(Backend::kGloo, kAllGather, kPadded), std::vector{kRing});
  EXPECT_EQ(of(Backend::kNccl, kReduceScatter, kPadded), std::vector{kRing});
  EXPECT_EQ(of(Backend::kGloo, kReduceScatter, kPadded), std::vector{kWhole});
  EXPECT_EQ(of(Backend::kGloo, kReduceScatter, ExchangeMethod::kGrouped),
            std::vector{Algorithm::kGrouped});
  EXPECT_EQ(of(Backend::kNccl, kAllReduce, ExchangeMethod::kHierarchical),
            std::vector{Algorithm::kHierarchical});
  EXPECT_EQ(of(Backend::kNccl, kAllToAll, ExchangeMethod::kGrouped), std::vector{kDirect});
}

TEST(Collectives, EveryBackendOffersEveryCollective) {
  for (const Backend backend : {Backend::kGloo, Backend::kNccl}) {
    for (const Collective op :
         {kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kSend}) {
      EXPECT_FALSE(backend_algorithms(backend, op).empty());
      for (const Algorithm algorithm : backend_algorithms(backend, op)) {
        EXPECT_TRUE(is_applicable(algorithm, op))
            << collective_name(op) << " " << static_cast<int>(algorithm);
      }
    }
  }
}

RC_GTEST_PROP(CollectivesProperty, BytesScaleTimeWithoutLatency, ()) {
  // Twice the bytes at the same ports take twice the time, and never less than the largest part.
  const auto nodes = *rc::gen::container<std::vector<int>>(3, rc::gen::inRange(1, 4));
  const auto op = *rc::gen::element(kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll);
  const auto algorithm =
      *rc::gen::suchThat(rc::gen::element(kRing, kTree, kHalvingDoubling, kHierarchical, kDirect,
                                          kGrouped, kSeparate, kWhole),
                         [&](Algorithm a) { return is_applicable(a, op); });
  const Network network = network_of(nodes);
  CollectiveCall call{op, first(std::accumulate(nodes.begin(), nodes.end(), 0)), {}};
  for (std::size_t i = 0; i < call.devices.size(); ++i) {
    call.bytes.push_back(*rc::gen::inRange(1, 1000));
  }
  const auto time = [&] {
    return isolated_time(build_transfer(network, call, algorithm, {}), network.capacities()).value;
  };
  const double once = time();
  for (double& bytes : call.bytes) bytes *= 2;
  RC_ASSERT(std::abs(time() - 2 * once) <= 1e-9 * once);
  RC_ASSERT(once > 0);
}

}  // namespace
}  // namespace motley::cost
