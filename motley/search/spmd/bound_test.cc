#include "motley/search/spmd/bound.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "motley/base/random.h"
#include "motley/search/region/random_region.h"
#include "motley/search/spmd/price_sharding.h"
#include "motley/search/spmd/spmd_search.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/rounds.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

using BoundTest = WideMlpTest;

TEST_F(BoundTest, HoldsForRandomWaysAndShares) {
  for (const int width : {64, 1024, 8192}) {
    set_up(width, "", 512);
    const SpmdQuestion question{&model_.graph, &cluster_, &costs_, {}, 512, problem_.devices, {}};
    auto study = SpmdStudy::make(question);
    ASSERT_TRUE(study) << study.error().message;
    const Seconds bound =
        spmd_lower_bound(*study, Seconds(std::numeric_limits<double>::infinity()));
    EXPECT_GT(bound.value, 0);
    SplitMix64 random(static_cast<std::uint64_t>(width));
    for (int draw = 0; draw < 100; ++draw) {
      const std::vector<double> shares = {0.1 + random.uniform(), 0.1 + random.uniform()};
      const SpmdChoices& choices = study->choices(shares);
      std::vector<int> choice;
      for (const int domain : choices.problem.layout().domains)
        choice.push_back(static_cast<int>(random.below(static_cast<std::uint64_t>(domain))));
      const auto plan = price_sharding(*study, problem_.devices,
                                       study->sharding(choices, choice, problem_.devices, shares));
      ASSERT_TRUE(plan) << plan.error().message;
      EXPECT_GE(plan->step.value, bound.value * (1 - 1e-6)) << width;
    }
    if (width < 8192) continue;  // one device alone, which is in the bound, is much faster
    const auto answer = find_spmd_plan(*study);
    ASSERT_TRUE(answer && answer->best);
    EXPECT_LE(answer->best->step.value, 2 * bound.value) << width;  // it says something
  }
}

/// Two to five unlike devices, of planning kinds or measured here at different speeds.
cluster::Cluster draw_cluster(SplitMix64& random) {
  constexpr const char* kKinds[] = {"a100-40g", "v100-16g", "t4", "rtx3090", "rtx4090"};
  const bool is_planned = random.below(2) == 0;
  std::string text = "schema = \"motley.cluster/1\"\nname = \"drawn\"\n";
  const std::size_t count = 2 + random.below(4);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string kind =
        is_planned ? fmt::format("kind = \"{}\"", kKinds[random.below(std::size(kKinds))])
                   : fmt::format("kind = \"cpu\"\nspeed = {:.2f}", 0.1 + 0.9 * random.uniform());
    text += fmt::format("[[node]]\nname = \"n{}\"\nhost = \"h{}\"\n[[node.device]]\n{}\n", i,
                        random.below(2) == 0 ? 0 : i, kind);
  }
  text += fmt::format("[[link]]\nall = true\nbandwidth = \"{}Mbps\"\nlatency = \"20us\"\n",
                      100 << random.below(10));
  return *cluster::parse_cluster(text, "drawn");
}

// What simulated instructions are rounded to is all that a step may be below its bound.
TEST(Bound, HoldsForDrawnPlansOfEveryFamilyOnDrawnDevices) {
  for (const char* model : {"mlp", "cnn", "gpt"}) {
    for (std::uint64_t seed = 1; seed <= testing::rounds(1, 8); ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", model, seed));
      SplitMix64 random(seed);
      const InventedProfile invented(synth::read_graph(model), draw_cluster(random), 12);
      plan::Problem problem = invented.problem();
      const graph::Graph& graph = invented.model().graph;
      const SpmdQuestion question{&graph,
                                  problem.cluster,
                                  &invented.costs(),
                                  {problem.recipe, problem.batch_norm, problem.bucket_bytes},
                                  12,
                                  problem.devices,
                                  {}};
      auto study = SpmdStudy::make(question);
      ASSERT_TRUE(study) << study.error().message;
      const Seconds bound =
          spmd_lower_bound(*study, Seconds(std::numeric_limits<double>::infinity()));
      EXPECT_GT(bound.value, 0);
      for (int draw = 0; draw < 5; ++draw) {
        problem.seed = random.next();
        std::vector<std::string> why;
        const auto region = draw_region(problem, graph, why);
        ASSERT_TRUE(region && *region);
        const auto price = invented.evaluator().price(
            make_region_plan(problem, (*region)->region, (*region)->micro_batches));
        ASSERT_TRUE(price) << price.error().message;
        EXPECT_GE(price->step + price->rounding, bound);
      }
      const auto best = find_spmd_plan(*study);
      ASSERT_TRUE(best && best->best);
      EXPECT_GE(best->best->step.value, best->lower_bound.value * (1 - 1e-6));
    }
  }
}

}  // namespace
}  // namespace motley::search
