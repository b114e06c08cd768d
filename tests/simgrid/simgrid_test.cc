// FlowNetwork against SimGrid's network model (CM02: max-min fairness among flows; Legrand et al.,
// JPDC 2014): random platforms and flows, and the collectives of motley/cost on unequal links.
// SimGrid runs once in a process, so all scenes, which share no links, run in it side by side.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <simgrid/s4u.hpp>

#include "motley/base/random.h"
#include "motley/cost/links/collectives.h"
#include "motley/cost/links/network.h"
#include "motley/simulate/flow_network.h"

namespace motley {
namespace {

namespace sg = simgrid::s4u;
using cost::Flow;
using cost::Transfer;
using cost::TransferPhase;
using trace::Nanoseconds;

/// Transfers that begin at time 0 on links of their own. Weights are whole numbers.
struct Scene {
  std::string name;
  std::vector<double> capacities;
  std::vector<Transfer> transfers;
};

// ---- FlowNetwork

struct Running {
  std::size_t phase = 0, flows = 0;
};

/// End of each transfer in seconds.
std::vector<double> run_flow_network(const Scene& scene) {
  simulate::FlowNetwork network(scene.capacities);
  std::vector<Running> running(scene.transfers.size());
  std::vector<double> ends(scene.transfers.size(), 0);
  std::multimap<Nanoseconds, std::size_t> begins;  // of phases, after their delay
  std::map<std::int32_t, std::size_t> transfer_of;
  const auto go_on = [&](std::size_t transfer, Nanoseconds now) {
    const auto& phases = scene.transfers[transfer].phases;
    ends[transfer] = static_cast<double>(now) * 1e-9;
    if (running[transfer].phase == phases.size()) return;
    const double delay = phases[running[transfer].phase].delay.value;
    begins.emplace(now + std::llround(delay * 1e9), transfer);
  };
  for (std::size_t i = 0; i < scene.transfers.size(); ++i) go_on(i, 0);
  std::vector<std::int32_t> ended;
  for (;;) {
    const Nanoseconds end = network.next_end();
    if (begins.empty() && end == simulate::FlowNetwork::kNever) return ends;
    if (!begins.empty() && begins.begin()->first <= end) {
      const auto [now, transfer] = *begins.begin();
      begins.erase(begins.begin());
      const TransferPhase& phase = scene.transfers[transfer].phases[running[transfer].phase++];
      running[transfer].flows = phase.flows.size();
      for (const Flow& flow : phase.flows) transfer_of[network.start(now, flow)] = transfer;
      if (phase.flows.empty()) go_on(transfer, now);
      continue;
    }
    ended.clear();
    network.end_next(ended);
    for (const std::int32_t flow : ended) {
      if (--running[transfer_of.at(flow)].flows == 0) go_on(transfer_of.at(flow), end);
    }
  }
}

// ---- SimGrid

struct Pair {
  sg::Host *from, *to;
};

/// A scene's links, and for each flow two hosts whose route is the flow's links (one of weight 2 is
/// named twice).
std::vector<std::vector<std::vector<Pair>>> build_platform(const Scene& scene, sg::NetZone* root) {
  sg::NetZone* zone = sg::create_full_zone(scene.name)->set_parent(root);
  std::vector<sg::Link*> links;
  for (std::size_t i = 0; i < scene.capacities.size(); ++i) {
    links.push_back(zone->create_link(fmt::format("{} link {}", scene.name, i), scene.capacities[i])
                        ->set_latency(0));
  }
  std::vector<std::vector<std::vector<Pair>>> pairs;  // [transfer][phase][flow]
  int number = 0;
  for (const Transfer& transfer : scene.transfers) {
    pairs.emplace_back();
    for (const TransferPhase& phase : transfer.phases) {
      pairs.back().emplace_back();
      for (const Flow& flow : phase.flows) {
        const auto host = [&](const char* end) {
          return zone->create_host(fmt::format("{} {} {}", scene.name, end, number), 1e9);
        };
        const Pair pair{host("from"), host("to")};
        ++number;
        std::vector<sg::LinkInRoute> route;
        for (const cost::LinkUse& use : flow.uses) {
          for (int k = 0; k < static_cast<int>(use.weight); ++k) {
            route.emplace_back(links[static_cast<std::size_t>(use.link)]);
          }
        }
        if (flow.most_rate > 0) {  // as a link of its own
          route.emplace_back(
              zone->create_link(fmt::format("{} own {}", scene.name, number), flow.most_rate)
                  ->set_latency(0));
        }
        zone->add_route(pair.from->get_netpoint(), pair.to->get_netpoint(), nullptr, nullptr, route,
                        false);
        pairs.back().back().push_back(pair);
      }
    }
  }
  zone->seal();
  return pairs;
}

void run_transfer(const Transfer& transfer, const std::vector<std::vector<Pair>>& pairs,
                  double& end) {
  for (std::size_t p = 0; p < transfer.phases.size(); ++p) {
    const TransferPhase& phase = transfer.phases[p];
    sg::this_actor::sleep_for(phase.delay.value);
    std::vector<sg::CommPtr> comms;
    for (std::size_t f = 0; f < phase.flows.size(); ++f) {
      auto comm = sg::Comm::sendto_init(pairs[p][f].from, pairs[p][f].to);
      comm->set_payload_size(static_cast<std::uint64_t>(phase.flows[f].bytes));
      comms.push_back(comm);
    }
    for (const sg::CommPtr& comm : comms) comm->start();
    for (const sg::CommPtr& comm : comms) comm->wait();
  }
  end = sg::Engine::get_clock();
}

/// End of each transfer of each scene in seconds.
std::vector<std::vector<double>> run_simgrid(const std::vector<Scene>& scenes) {
  // Threads as contexts: sanitizers do not follow stacks that are swapped by hand.
  std::vector<std::string> words = {"simgrid_test", "--log=root.thresh:warning",
                                    "--cfg=contexts/factory:thread"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  int count = static_cast<int>(arguments.size());
  sg::Engine engine(&count, arguments.data());
  sg::Engine::set_config("network/model:CM02");
  sg::Engine::set_config("network/crosstraffic:0");  // else answers slow the way back down
  sg::Engine::set_config("network/bandwidth-factor:1");
  sg::Engine::set_config("network/latency-factor:1");
  sg::Engine::set_config("network/weight-S:0");
  sg::Engine::set_config("maxmin/precision:1e-9");
  sg::Engine::set_config("surf/precision:1e-9");
  sg::NetZone* root = sg::create_full_zone("root");
  sg::Host* control = root->create_host("control", 1e9);
  std::vector<std::vector<double>> ends;
  std::vector<std::vector<std::vector<std::vector<Pair>>>> pairs;
  for (const Scene& scene : scenes) {
    pairs.push_back(build_platform(scene, root));
    ends.emplace_back(scene.transfers.size(), -1);
  }
  root->seal();
  for (std::size_t s = 0; s < scenes.size(); ++s) {
    for (std::size_t t = 0; t < scenes[s].transfers.size(); ++t) {
      sg::Actor::create("transfer", control, [&, s, t] {
        run_transfer(scenes[s].transfers[t], pairs[s][t], ends[s][t]);
      });
    }
  }
  engine.run();
  return ends;
}

// ---- Scenes

constexpr int kRandomScenes = 100;

/// 2 to 8 links, 1 to 16 flows that start at 0 to 4 s and need some seconds; capped ones, and such
/// as take a link twice.
Scene random_scene(std::uint64_t seed) {
  SplitMix64 random(seed);
  Scene scene{fmt::format("random {}", seed), {}, {}};
  const std::uint64_t links = 2 + random.below(7), flows = 1 + random.below(16);
  for (std::uint64_t i = 0; i < links; ++i)
    scene.capacities.push_back(1e6 * (1 + 9 * random.uniform()));
  for (std::uint64_t i = 0; i < flows; ++i) {
    Flow flow{static_cast<double>(500'000 + random.below(8'000'000)), {}};
    for (std::uint64_t link = 0; link < links; ++link) {
      if (random.below(3) != 0) continue;
      flow.uses.push_back({static_cast<std::int32_t>(link), random.below(4) == 0 ? 2.0 : 1.0});
    }
    if (flow.uses.empty()) flow.uses.push_back({0});
    if (random.below(4) == 0) flow.most_rate = 1e5 * static_cast<double>(1 + random.below(20));
    const Seconds start(0.25 * static_cast<double>(random.below(17)));
    scene.transfers.push_back({{TransferPhase{start, {flow}}}});
  }
  return scene;
}

cost::Network network_of(const std::vector<double>& bandwidths, int devices_each) {
  cluster::Cluster cluster;
  for (std::size_t i = 0; i < bandwidths.size(); ++i) {
    const NodeId node(static_cast<std::int64_t>(i));
    cluster.nodes.push_back({.name = fmt::format("n{}", i)});
    for (int d = 0; d < devices_each; ++d) {
      cluster.devices.push_back({.node = node, .name = fmt::format("n{}:{}", i, d)});
    }
    cluster.links.push_back({{node}, BytesPerSecond(4e6), Seconds(0.0)});
    // Pair links: each node is joined to the others as fast as the slower of the two.
    for (std::size_t j = 0; j < i; ++j) {
      cluster.links.push_back({{NodeId(static_cast<std::int64_t>(j)), node},
                               BytesPerSecond(std::min(bandwidths[i], bandwidths[j])),
                               Seconds(0.0)});
    }
  }
  return cost::Network(cluster);
}

/// SimGrid moves whole bytes over whole-numbered links: fewer bytes with as much larger weights.
void make_whole(Flow& flow) {
  int times = 1;
  const auto is_whole = [&](const cost::LinkUse& use) {
    return std::abs(times * use.weight - std::round(times * use.weight)) < 1e-9;
  };
  while (!std::all_of(flow.uses.begin(), flow.uses.end(), is_whole)) ++times;
  flow.bytes = std::round(flow.bytes / times);
  if (flow.most_rate > 0) flow.most_rate /= times;
  for (cost::LinkUse& use : flow.uses) use.weight = std::round(times * use.weight);
}

/// Every algorithm of every collective with uneven parts, two at a time on the same links.
std::vector<Scene> collective_scenes(const cost::Network& network, std::size_t ranks) {
  using enum cost::Algorithm;
  using enum cost::Collective;
  std::vector<DeviceId> devices;
  std::vector<double> bytes;
  for (std::size_t i = 0; i < ranks; ++i) {
    devices.emplace_back(static_cast<std::int64_t>(i));
    bytes.push_back(256e3 * static_cast<double>(1 + i % 3));
  }
  std::vector<Scene> scenes;
  for (const auto op : {kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll}) {
    for (const auto algorithm :
         {kRing, kTree, kHalvingDoubling, kHierarchical, kDirect, kGrouped, kSeparate, kWhole}) {
      if (!cost::is_applicable(algorithm, op)) continue;
      Transfer transfer = cost::build_transfer(network, {op, devices, bytes}, algorithm,
                                               {.latency = Seconds(1e-3)});
      for (TransferPhase& phase : transfer.phases)
        for (Flow& flow : phase.flows) make_whole(flow);
      scenes.push_back({fmt::format("{} by algorithm {} of {}", cost::collective_name(op),
                                    static_cast<int>(algorithm), ranks),
                        network.capacities(),
                        {transfer, transfer}});
    }
  }
  return scenes;
}

std::vector<Scene> all_scenes() {
  std::vector<Scene> scenes;
  for (int seed = 1; seed <= kRandomScenes; ++seed) {
    scenes.push_back(random_scene(static_cast<std::uint64_t>(seed)));
  }
  for (Scene& scene : collective_scenes(network_of({1e6, 2e6, 3e6, 2.5e6}, 2), 8)) {
    scenes.push_back(std::move(scene));
  }
  for (Scene& scene : collective_scenes(network_of({1e6, 2e6, 1.5e6}, 1), 3)) {
    scenes.push_back(std::move(scene));
  }
  return scenes;
}

/// A ring all-reduce step by step: in each of 2 (n - 1) steps every rank sends a part of B / n.
Scene stepwise_ring(const std::vector<double>& bandwidths, double bytes) {
  const cost::Network network = network_of(bandwidths, 1);
  const std::size_t n = bandwidths.size();
  TransferPhase step;
  for (std::size_t i = 0; i < n; ++i) {
    Flow flow{bytes / static_cast<double>(n), {}};
    for (const std::int32_t link : network
                                       .path(DeviceId(static_cast<std::int64_t>(i)),
                                             DeviceId(static_cast<std::int64_t>((i + 1) % n)))
                                       .links) {
      flow.uses.push_back({link});
    }
    step.flows.push_back(flow);
  }
  return {"stepwise ring", network.capacities(), {{std::vector<TransferPhase>(2 * (n - 1), step)}}};
}

const std::vector<double> kRing = {3e6, 2e6, 4e6, 5e6};
constexpr double kRingBytes = 4e6;

struct Ends {
  std::vector<Scene> scenes;
  std::vector<std::vector<double>> simgrid;
};

const Ends& ends() {
  static const Ends all = [] {
    Ends ends{all_scenes(), {}};
    ends.scenes.push_back(stepwise_ring(kRing, kRingBytes));
    ends.simgrid = run_simgrid(ends.scenes);
    return ends;
  }();
  return all;
}

TEST(SimGrid, FlowsEndAtTheSameTime) {
  double worst = 0;
  std::size_t compared = 0;
  for (std::size_t s = 0; s < ends().scenes.size(); ++s) {
    const Scene& scene = ends().scenes[s];
    const std::vector<double> own = run_flow_network(scene);
    for (std::size_t t = 0; t < own.size(); ++t) {
      ASSERT_GT(ends().simgrid[s][t], 0) << scene.name;
      EXPECT_NEAR(own[t] / ends().simgrid[s][t], 1, 1e-6) << scene.name << ", transfer " << t;
      worst = std::max(worst, std::abs(own[t] / ends().simgrid[s][t] - 1));
      ++compared;
    }
  }
  EXPECT_GT(compared, 500u);
  RecordProperty("worst", fmt::format("{:.3g}", worst));
}

TEST(SimGrid, ARingInStepsIsOneFlow) {
  // 2 * 3/4 * 4 MB over the slowest hop (2 MB/s): 3 s, step by step as at one rate.
  const cost::Network network = network_of(kRing, 1);
  const Transfer ring = cost::build_transfer(
      network,
      cost::even_call(cost::Collective::kAllReduce,
                      {DeviceId(0), DeviceId(1), DeviceId(2), DeviceId(3)}, kRingBytes),
      cost::Algorithm::kRing, {});
  EXPECT_NEAR(cost::isolated_time(ring, network.capacities()).value, 3, 1e-9);
  EXPECT_NEAR(ends().simgrid.back()[0], 3, 1e-6);
}

}  // namespace
}  // namespace motley
