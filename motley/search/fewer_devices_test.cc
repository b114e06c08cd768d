// More devices are never worse: no plan of `auto` is slower than its plan without one device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "motley/base/random.h"
#include "motley/graph/graph_text.h"
#include "motley/search/planners.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/rounds.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

/// Draws two to four devices of random kinds and memories, on nodes of one or two, behind a link.
cluster::Cluster draw_few_devices(SplitMix64& random) {
  constexpr const char* kKinds[] = {"a100-40g", "v100-16g", "t4", "rtx3090", "rtx4090", "p100"};
  constexpr const char* kMemories[] = {"530MiB", "700MiB", "1GiB"};
  std::string text = "schema = \"motley.cluster/1\"\nname = \"drawn\"\n";
  std::size_t left = 2 + random.below(3);
  for (int node = 0; left > 0; ++node) {
    const std::size_t count = std::min<std::size_t>(left, 1 + random.below(4) / 3);
    left -= count;
    text += fmt::format(
        "[[node]]\nname = \"n{0}\"\nhost = \"h{0}\"\n[[node.device]]\nkind = \"{1}\"\ncount = "
        "{2}\n",
        node, kKinds[random.below(std::size(kKinds))], count);
    if (random.below(4) == 0)
      text += fmt::format("memory = \"{}\"\n", kMemories[random.below(std::size(kMemories))]);
  }
  return *cluster::parse_cluster(
      text + fmt::format("[[link]]\nall = true\nbandwidth = \"{}Mbps\"\nlatency = \"{}us\"\n",
                         30 << random.below(12), 5 << random.below(5)),
      "drawn");
}

graph::Graph draw_graph(SplitMix64& random) {
  const std::uint64_t drawn = random.below(4);
  if (drawn == 0) return synth::read_graph("gpt");
  return *graph::parse_graph(mlp_text(256 << (2 * drawn)), "wide");
}

double step_of(const InventedProfile& invented, const std::vector<DeviceId>& devices) {
  plan::Problem problem = invented.problem();
  problem.devices = devices;
  const auto made = make_planner("auto", invented.evaluator().inputs());
  const auto outcome = (*made)->plan(problem);
  EXPECT_TRUE(outcome) << outcome.error().message;
  if (!outcome || !outcome->plan) return std::numeric_limits<double>::infinity();
  EXPECT_LE(outcome->lower_bound.value, outcome->predicted_step.value);
  return outcome->predicted_step.value;
}

TEST(FewerDevices, AreNeverQuickerThanAllOfThem) {
  std::int64_t shared = 0;  // plans with several devices
  for (std::uint64_t seed = 1; seed <= testing::rounds(16, 400); ++seed) {
    SplitMix64 random(seed);
    const std::int64_t batch = 8 << random.below(7);
    graph::Graph graph = draw_graph(random);
    const InventedProfile invented(std::move(graph), draw_few_devices(random), batch);
    const std::vector<DeviceId> all = invented.problem().devices;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const double step = step_of(invented, all);
    for (std::size_t out = 0; out < all.size(); ++out) {
      std::vector<DeviceId> fewer = all;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(out));
      const double other = step_of(invented, fewer);
      EXPECT_LE(step, other * (1 + 1e-9)) << "without " << out;
      shared += other > step * (1 + 1e-9) ? 1 : 0;
    }
  }
  EXPECT_GT(shared, 5);
}

}  // namespace
}  // namespace motley::search
