#include "motley/control/survey/found_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley::control {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::SizeIs;

/// Machines named `nodes`, each with a CPU; all pairs at `rate`, except those of the last machine.
FoundHosts find(const std::vector<std::string>& hosts, const std::vector<std::string>& nodes,
                double rate, double of_last) {
  FoundHosts found{.hosts = hosts};
  for (const std::string& node : nodes) {
    found.clusters.push_back(
        cluster::parse_cluster(
            "schema = \"motley.cluster/1\"\nname = \"own\"\n[[node]]\nname = \"" + node +
                "\"\n[[node.device]]\nkind = \"cpu\"\n",
            node)
            .value());
    found.facts.push_back({.motley = "1.2.3",
                           .torch = "2.15",
                           .processor = "Chip",
                           .instructions = "avx2",
                           .cores = 8});
  }
  found.wires.hosts = hosts.size();
  for (std::size_t a = 0; a < hosts.size(); ++a)
    for (std::size_t b = 0; b < hosts.size(); ++b)
      if (a != b)
        found.wires.alone.push_back(
            {{a, b},
             Seconds(1e-4),
             BytesPerSecond(std::max(a, b) + 1 == hosts.size() ? of_last : rate)});
  return found;
}

TEST(FoundCluster, HasNodesDevicesLinksAndCards) {
  const auto made = make_found_cluster(find({"a", "b", "c"}, {"a", "b", "c"}, 1e8, 2.5e7), "found");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->cluster.device(DeviceId(2)).name, "c:0");
  ASSERT_THAT(made->cluster.links, SizeIs(1));
  EXPECT_EQ(made->cluster.links[0].bandwidth.value, 1e8);
  EXPECT_THAT(made->cluster.nodes[2].bandwidth, Optional(BytesPerSecond(2.5e7)));
  EXPECT_EQ(made->cluster.nodes[0].bandwidth, std::nullopt);
  EXPECT_THAT(made->notes, Contains("b: 8 cores of Chip, avx2; Motley 1.2.3, PyTorch 2.15"));
  EXPECT_THAT(made->notes, Contains("a to c: 200Mbps, 100us"));
}

TEST(FoundCluster, EqualNamesBecomeWhatWasAskedFor) {
  const auto made =
      make_found_cluster(find({"10.0.0.1", "10.0.0.2"}, {"x", "x"}, 1e8, 1e8), "found");
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->cluster.nodes[0].name, "x");
  EXPECT_EQ(made->cluster.nodes[1].name, "10-0-0-2");
}

TEST(FoundCluster, AClockThatIsOffIsSaid) {
  EXPECT_EQ(clock_note("b", Seconds(0.9)), "");
  EXPECT_EQ(clock_note("b", Seconds(90)),
            "b: its clock is 90.0 s ahead of this one's: times in its logs and of its files are "
            "its own; nothing else of a run depends on it");
}

}  // namespace
}  // namespace motley::control
