#include "motley/search/spmd/price_sharding.h"

#include <gtest/gtest.h>

#include <random>

#include "motley/search/region/random_region.h"
#include "motley/search/spmd/depths.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/testing/invented_profile.h"
#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

class ManyMicroBatches : public WideMlpTest, public ::testing::WithParamInterface<std::int64_t> {};

// Split by samples, which micro-batches do not exchange. Three micro-batches are the first, one in
// between, like all but two of eight, and the last. With two interleaved, three pairs suffice, or
// two if nothing is exchanged.
TEST_P(ManyMicroBatches, AreOnALineThroughFewer) {
  constexpr std::int64_t kTimes = 8;
  set_up(256, "", 64);
  SpmdQuestion question{&model_.graph, &cluster_, &costs_, {}, 64, problem_.devices, {}};
  question.micro_batches = kTimes;
  question.turns = GetParam();
  auto study = SpmdStudy::make(question);
  ASSERT_TRUE(study) << study.error().message;
  ASSERT_EQ(study->programs().back().accumulations.size(), 2u);
  const std::vector<double> shares = {3, 1};
  const SpmdChoices& choices = study->choices(shares);
  const std::vector<int> first(choices.problem.layout().domains.size(), 0);
  const synth::Sharding sharding = study->sharding(choices, first, problem_.devices, shares);
  EXPECT_EQ(sharding.turns, GetParam());
  const auto estimate = price_sharding(*study, problem_.devices, sharding);
  ASSERT_TRUE(estimate) << estimate.error().message;
  EXPECT_EQ(estimate->sharding.micro_batches, kTimes);
  const plan::Region region = synth::make_region(model_.graph, estimate->sharding, cluster_);
  const auto price = evaluator_->price(make_region_plan(problem_, region, kTimes, GetParam()));
  ASSERT_TRUE(price) << price.error().message;
  const SpmdPlan full = with_price(*study, *estimate, *price);
  EXPECT_EQ(full.step, price->step);
  EXPECT_NEAR(estimate->step.value, full.step.value, 0.001 * full.step.value);
  for (std::size_t rank = 0; rank < 2; ++rank)
    EXPECT_NEAR(static_cast<double>(estimate->peaks[rank].value),
                static_cast<double>(full.peaks[rank].value), 16384);
}

INSTANTIATE_TEST_SUITE_P(Turns, ManyMicroBatches, ::testing::Values(1, 2));

// A plan found in fewer layers is one of all; buckets of more layers have their own methods.
TEST(FewerLayers, HaveOtherExchangesThanAll) {
  const auto graph = graph::parse_graph(deep_text(8, 64), "deep");
  ASSERT_TRUE(graph) << graph.error().message;
  const InventedProfile invented(*graph, three_devices("far"), 64);
  const plan::Problem problem = invented.problem();
  SpmdQuestion question{
      &invented.model().graph, problem.cluster, &invented.costs(), {}, 64, problem.devices, {}};
  question.depths = find_depths(*graph);
  ASSERT_TRUE(question.depths);
  auto study = SpmdStudy::make(question);
  ASSERT_TRUE(study) << study.error().message;
  const std::vector<double> shares = {4, 2, 1};
  const SpmdChoices& choices = study->choices(shares);
  std::mt19937 random(3);
  int others = 0;
  for (int i = 0; i < 60; ++i) {
    std::vector<int> choice;
    for (const int domain : choices.problem.layout().domains)
      choice.push_back(static_cast<int>(random() % static_cast<unsigned>(domain)));
    const auto found = price_sharding(*study, problem.devices,
                                      study->sharding(choices, choice, problem.devices, shares));
    ASSERT_TRUE(found) << found.error().message;
    synth::Sharding whole = spread_over_whole(found->sharding, question.depths->searched);
    others += !synth::lower_sharded(*graph, whole, question.lowering);
    const auto ways = choose_ways(*study, problem.devices, whole);
    ASSERT_TRUE(ways) << ways.error().message;
    whole.exchanges = *ways;
    const auto lowered = synth::lower_sharded(*graph, whole, question.lowering);
    EXPECT_TRUE(lowered) << lowered.error().message;
  }
  EXPECT_GT(others, 0);
}

}  // namespace
}  // namespace motley::search
