#include "motley/search/region/random_stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "motley/synth/lower.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/rounds.h"

namespace motley::search {
namespace {

bool change_program(const graph::Graph& graph, const plan::Plan& plan,
                    const plan::Problem& problem) {
  plan::Plan without = plan;
  for (plan::Replica& replica : without.replicas)
    for (plan::Region& region : replica.regions) region.turns = 1;
  const auto program = synth::lower(graph, plan, *problem.cluster);
  const auto other = synth::lower(graph, without, *problem.cluster);
  return program && other && *program != *other;
}

/// Every drawn plan verifies and becomes a verified program without deadlock.
TEST(DrawStages, PlansAreLoweredAndComeToTheirEnd) {
  bool has_uneven = false, has_shared = false, has_overlap = false, has_pairs = false;
  for (const char* model : {"mlp", "gpt"}) {
    const InventedProfile invented(synth::read_graph(model), three_devices("emulated", ""), 12);
    plan::Problem problem = invented.problem();
    const StageRange range{problem.cluster, problem.devices, 12, 1, plan::BatchNormSpan::kStep};
    for (std::uint64_t seed = 0; seed < testing::rounds(12, 200); ++seed) {
      SCOPED_TRACE(std::string(model) + " seed " + std::to_string(seed));
      plan::Plan plan = plan::blank_plan(problem);
      const DrawnStages drawn = draw_stages(invented.model().graph, range, seed);
      EXPECT_EQ(drawn, draw_stages(invented.model().graph, range, seed));
      plan.replicas = drawn.replicas;
      plan.owners = drawn.owners;
      ASSERT_TRUE(plan::verify_plan(plan, problem.model_hash, *problem.cluster));
      const auto price = invented.evaluator().price(plan);
      ASSERT_TRUE(price) << price.error().message;
      EXPECT_GT(price->step.value, 0);
      EXPECT_EQ(price->peaks.size(), plan::members(plan).size());
      for (const plan::Replica& replica : plan.replicas) {
        has_uneven = has_uneven || replica.samples % replica.micro_batches != 0;
        std::size_t devices = 0;
        for (const plan::Region& region : replica.regions) {
          has_shared = has_shared || region.devices.size() > 1;
          if (region.turns > 1)
            has_pairs = has_pairs || change_program(invented.model().graph, plan, problem);
          devices += region.devices.size();
        }
        has_overlap = has_overlap || devices > plan::members(plan).size();
      }
    }
  }
  EXPECT_TRUE(has_uneven);
  EXPECT_TRUE(has_shared);
  EXPECT_TRUE(has_overlap);
  EXPECT_TRUE(has_pairs);
}

}  // namespace
}  // namespace motley::search
