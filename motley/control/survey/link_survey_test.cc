#include "motley/control/survey/link_survey.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/cost/links/network.h"
#include "motley/simulate/flow_network.h"

namespace motley::control {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

/// Nodes h0, h1, ... with `links` in a cluster file's form; `cards`: bandwidth by node.
cluster::Cluster invent(int nodes, const std::string& links,
                        const std::map<int, std::string>& cards = {}) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"invented\"\n";
  for (int i = 0; i < nodes; ++i) {
    text += fmt::format("[[node]]\nname = \"h{}\"\n", i);
    if (cards.contains(i)) text += fmt::format("bandwidth = \"{}\"\n", cards.at(i));
    text += "  [[node.device]]\n  kind = \"cpu\"\n";
  }
  return cluster::parse_cluster(text + links, "invented").value();
}

std::string all(const std::string& rate, const std::string& more = "") {
  return fmt::format("[[link]]\nall = true\nbandwidth = \"{}\"\nlatency = \"100us\"\n{}\n", rate,
                     more);
}

std::string between(int first, int last, const std::string& rate) {
  std::string names;
  for (int i = first; i <= last; ++i) names += fmt::format("{}\"h{}\"", i > first ? ", " : "", i);
  return fmt::format("[[link]]\nbetween = [{}]\nbandwidth = \"{}\"\nlatency = \"100us\"\n", names,
                     rate);
}

/// Returns the rates of flows in a simulated network, and counts its requests.
class Invented {
 public:
  explicit Invented(cluster::Cluster cluster) : cluster_(std::move(cluster)), network_(cluster_) {}

  std::vector<Wire> measure(const LinkSurvey::Batch& batch) {
    if (batch.what == LinkSurvey::Batch::What::kTogether) {
      ++loads;
      return send(batch.flows);
    }
    ++rounds;
    most_at_once = std::max(most_at_once, batch.flows.size());
    std::vector<WireFlow> reverse;
    for (const WireFlow& flow : batch.flows) reverse.push_back({flow.to, flow.from});
    const std::vector<Wire> there = send(batch.flows), back = send(reverse);
    std::vector<Wire> both;
    for (std::size_t i = 0; i < there.size(); ++i) {
      ++pairs[std::minmax(there[i].flow.from, there[i].flow.to)];
      both.insert(both.end(), {there[i], back[i]});
    }
    return both;
  }

  int rounds = 0, loads = 0;
  std::size_t most_at_once = 0;
  std::map<std::pair<std::size_t, std::size_t>, int> pairs;

 private:
  std::vector<Wire> send(const std::vector<WireFlow>& flows) {
    simulate::FlowNetwork shared(network_.capacities());
    std::vector<std::int32_t> numbers;
    std::vector<Wire> wires;
    for (const WireFlow& flow : flows) {
      const cost::Path path = network_.path(DeviceId(static_cast<std::int64_t>(flow.from)),
                                            DeviceId(static_cast<std::int64_t>(flow.to)));
      cost::Flow sent;
      sent.bytes = 1e9;
      sent.most_rate = 1e12;
      for (const std::int32_t link : path.links) sent.uses.push_back({link, 1.0});
      numbers.push_back(shared.start(0, sent));
      wires.push_back({flow, path.latency, BytesPerSecond(0)});
    }
    for (std::size_t i = 0; i < flows.size(); ++i)
      wires[i].bandwidth = BytesPerSecond(shared.rate(numbers[i]));
    return wires;
  }

  cluster::Cluster cluster_;
  cost::Network network_;
};

Wires survey(Invented& network, std::size_t hosts) {
  LinkSurvey survey(hosts);
  while (const auto batch = survey.next()) survey.take(*batch, network.measure(*batch));
  return survey.wires();
}

void expect_found(const cluster::Cluster& cluster, Invented& network) {
  const FoundLinks found = find_links(survey(network, cluster.nodes.size()));
  EXPECT_EQ(found.links, cluster.links);
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i)
    EXPECT_EQ(found.cards[i], cluster.nodes[i].bandwidth) << i;
  EXPECT_THAT(found.misfits, IsEmpty());
}

TEST(LinkSurvey, IdenticalHostsHaveOneLinkAndAreMeasuredSideBySide) {
  const cluster::Cluster cluster = invent(8, all("1Gbps"));
  Invented network(cluster);
  expect_found(cluster, network);
  EXPECT_THAT(network.pairs, SizeIs(8 * 7 / 2));
  // The first round's four pairs one by one, so that each host is known; then six rounds of four.
  EXPECT_EQ(network.rounds, 4 + 6);
  EXPECT_EQ(network.most_at_once, 4U);
  EXPECT_EQ(network.loads, 4);  // a host out and in, the ring, and one across
}

TEST(LinkSurvey, TwoHostsAreOnePair) {
  const cluster::Cluster cluster = invent(2, all("1Gbps"));
  Invented network(cluster);
  expect_found(cluster, network);
  EXPECT_EQ(network.rounds, 1);
  EXPECT_FALSE(LinkSurvey(1).next());
}

TEST(LinkSurvey, ASharedSwitchHasACapacity) {
  for (const int hosts : {3, 4, 5}) {
    const cluster::Cluster cluster = invent(hosts, all("1Gbps", "capacity = \"1.5Gbps\""));
    Invented network(cluster);
    expect_found(cluster, network);
  }
}

TEST(LinkSurvey, WhereAllShareASwitchPairsAreMeasuredOneAfterTheOther) {
  const cluster::Cluster cluster = invent(8, all("1Gbps", "capacity = \"1Gbps\""));
  Invented network(cluster);
  expect_found(cluster, network);
  // Four concurrent pairs get a quarter each. Two of them measured alone prove that; then come the
  // other two and the rest.
  EXPECT_EQ(network.rounds, 4 + 1 + (28 - 4));
}

TEST(LinkSurvey, ASlowHostHasACardOfItsOwn) {
  for (const int slow : {0, 2}) {
    const cluster::Cluster cluster = invent(3, all("1Gbps"), {{slow, "200Mbps"}});
    Invented network(cluster);
    expect_found(cluster, network);
  }
  const cluster::Cluster cluster = invent(6, all("1Gbps"), {{1, "200Mbps"}, {4, "100Mbps"}});
  Invented network(cluster);
  expect_found(cluster, network);
}

TEST(LinkSurvey, PairsThatAreSlowButShareNothingKeepTheirLinks) {
  // c gets 100 Mbps from each of the others, and 200 from both at once.
  const cluster::Cluster cluster =
      invent(3, between(0, 1, "200Mbps") +
                    "[[link]]\nbetween = [\"h0\", \"h2\"]\nbandwidth = "
                    "\"100Mbps\"\nlatency = \"100us\"\n" +
                    between(1, 2, "100Mbps"));
  Invented network(cluster);
  const FoundLinks found = find_links(survey(network, 3));
  EXPECT_EQ(found.links, cluster.links);
  EXPECT_THAT(found.cards, Each(std::nullopt));
}

TEST(LinkSurvey, ACardThatSeveralLinksShareIsNoticed) {
  // All pairs have their own cables, but h0's card takes only 400 Mbps of its three.
  std::string links;
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b)
      links += fmt::format("[[link]]\nbetween = [\"h{}\", \"h{}\"]\nbandwidth = \"{}Mbps\"\n", a, b,
                           a == 0 ? 100 * (b + 1) : 100 * (a + b));
  const cluster::Cluster cluster = invent(4, links, {{0, "400Mbps"}});
  Invented network(cluster);
  const FoundLinks found = find_links(survey(network, 4));
  EXPECT_EQ(found.links, cluster.links);
  EXPECT_THAT(found.cards[0], Optional(cluster.nodes[0].bandwidth.value()));
  EXPECT_THAT(found.cards[3], std::nullopt);
}

TEST(LinkSurvey, TwoRacksWithASlowUplink) {
  const std::string racks = between(0, 3, "1Gbps") + between(4, 7, "1Gbps");
  const cluster::Cluster cluster = invent(8, racks + all("100Mbps", "capacity = \"200Mbps\""));
  Invented network(cluster);
  expect_found(cluster, network);
}

TEST(LinkSurvey, FortyIdenticalHostsAreNotMeasuredEachWithEach) {
  const cluster::Cluster cluster = invent(40, all("1Gbps"));
  Invented network(cluster);
  expect_found(cluster, network);
  // Of 780 pairs: the first with all others, the second likewise, and eight drawn.
  EXPECT_LE(network.pairs.size(), 39U + 38 + 8);
  EXPECT_GE(network.pairs.size(), 39U + 38 + 1);
}

TEST(LinkSurvey, FortyHostsInThreeRacks) {
  const std::string racks =
      between(0, 15, "1Gbps") + between(16, 29, "1Gbps") + between(30, 39, "10Gbps");
  const cluster::Cluster cluster = invent(40, racks + all("100Mbps"));
  Invented network(cluster);
  const FoundLinks found = find_links(survey(network, 40));
  EXPECT_EQ(found.links, cluster.links);
  EXPECT_THAT(found.misfits, IsEmpty());
  EXPECT_LE(network.pairs.size(), 260U);
}

TEST(LinkSurvey, ASlowHostAmongFortyIsFoundWhereverItIs) {
  for (const int slow : {0, 1, 25}) {
    const cluster::Cluster cluster = invent(40, all("1Gbps"), {{slow, "200Mbps"}});
    Invented network(cluster);
    expect_found(cluster, network);
  }
}

TEST(LinkSurvey, TheSameIsAskedEachTime) {
  const auto asked = [] {
    Invented network(invent(20, all("1Gbps")));
    survey(network, 20);
    return network.pairs;
  };
  EXPECT_EQ(asked(), asked());
}

TEST(FindGroups, LatencyTellsHostsApart) {
  Wires wires{.hosts = 3};
  const BytesPerSecond rate(1e8);
  for (const auto& [from, to, latency] : {std::tuple(0, 1, 1e-4), {0, 2, 1e-2}, {1, 2, 1e-2}})
    wires.alone.push_back(
        {{static_cast<std::size_t>(from), static_cast<std::size_t>(to)}, Seconds(latency), rate});
  EXPECT_THAT(find_groups(Joints(wires)), ElementsAre(ElementsAre(0, 1), ElementsAre(2)));
  // Latencies within 0.2 ms are identical, whatever their ratio.
  wires.alone[0].latency = Seconds(1e-5);
  wires.alone[1].latency = wires.alone[2].latency = Seconds(2e-4);
  EXPECT_THAT(find_groups(Joints(wires)), ElementsAre(ElementsAre(0, 1, 2)));
}

/// 20 hosts; the first two were measured with all others, and one pair was drawn.
Wires twenty(double of_drawn) {
  Wires wires{.hosts = 20};
  const auto add = [&](std::size_t a, std::size_t b, double rate) {
    wires.alone.push_back({{a, b}, Seconds(1e-4), BytesPerSecond(rate)});
    wires.alone.push_back({{b, a}, Seconds(1e-4), BytesPerSecond(rate)});
  };
  for (std::size_t a = 0; a < 2; ++a)
    for (std::size_t b = a + 1; b < 20; ++b) add(a, b, 1e8);
  add(5, 9, of_drawn);
  return wires;
}

TEST(FindLinks, ADrawnPairThatContradictsHasALinkOfItsOwn) {
  EXPECT_THAT(find_links(twenty(1e8)).links, SizeIs(1));
  const FoundLinks found = find_links(twenty(5e7));
  ASSERT_THAT(found.links, SizeIs(2));
  EXPECT_THAT(found.links[0].between, ElementsAre(NodeId(5), NodeId(9)));
  EXPECT_EQ(found.links[0].bandwidth.value, 5e7);
  EXPECT_THAT(found.links[1].between, IsEmpty());
  EXPECT_EQ(found.links[1].bandwidth.value, 1e8);
}

TEST(FindLinks, MoreTogetherThanOneLinkGivesIsSaid) {
  Wires wires = twenty(1e8);
  wires.loads = {{{{0, 1}, {0, 2}}, {BytesPerSecond(1e8), BytesPerSecond(1e8)}}};
  EXPECT_THAT(find_links(wires).faster_together, ElementsAre(0));
  EXPECT_THAT(find_links(wires).cards, Each(std::nullopt));
}

}  // namespace
}  // namespace motley::control
