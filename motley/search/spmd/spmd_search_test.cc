#include "motley/search/spmd/spmd_search.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "motley/search/spmd/hap_search.h"
#include "motley/testing/golden.h"
#include "motley/testing/invented_profile.h"

namespace motley::search {
namespace {

/// Two nodes with two t4 each, behind a link.
cluster::Cluster two_pairs(const std::string& bandwidth) {
  return *cluster::parse_cluster("schema = \"motley.cluster/1\"\nname = \"pairs\"\n" +
                                     node_text("a", "h1", "kind = \"t4\"\ncount = 2") +
                                     node_text("b", "h2", "kind = \"t4\"\ncount = 2") +
                                     "[[link]]\nall = true\nlatency = \"20us\"\nbandwidth = \"" +
                                     bandwidth + "\"\n",
                                 "pairs");
}

class SpmdSearchTest : public ::testing::Test {
 protected:
  void set_up(const cluster::Cluster& cluster, const std::string& model = "mlp") {
    invented_ = std::make_unique<InventedProfile>(synth::read_graph(model), cluster, 64);
    const plan::Problem problem = invented_->problem();
    question_ = {&invented_->model().graph,
                 &invented_->cluster(),
                 &invented_->costs(),
                 {problem.recipe, problem.batch_norm, problem.bucket_bytes},
                 64,
                 problem.devices,
                 {}};
  }
  SpmdAnswer answer() {
    study_.reset();
    auto study = SpmdStudy::make(question_);
    EXPECT_TRUE(study) << study.error().message;
    study_.emplace(*std::move(study));
    auto found = find_spmd_plan(*study_);
    EXPECT_TRUE(found) << found.error().message;
    return *std::move(found);
  }

  std::unique_ptr<InventedProfile> invented_;
  SpmdQuestion question_;
  std::optional<SpmdStudy> study_;
};

// Nothing may cross the slow link: a pair on one node is best, the first of two.
TEST_F(SpmdSearchTest, StaysOnANodeWhereLinksAreSlow) {
  set_up(two_pairs("1Mbps"));
  const SpmdAnswer found = answer();
  ASSERT_TRUE(found.best);
  EXPECT_THAT(found.best->devices, ::testing::ElementsAre(DeviceId(0), DeviceId(1)));
  EXPECT_TRUE(found.is_exact);
  EXPECT_TRUE(std::isinf(found.lacking_step.value));
  EXPECT_LE(found.lower_bound, found.best->step);
}

// The search starts from known good shares; the answer is no worse than theirs or HAP's.
TEST_F(SpmdSearchTest, IsNoWorseThanWhatItIsGiven) {
  set_up(two_pairs("10Gbps"));
  const SpmdAnswer alone = answer();
  question_.shares = {{40, 0, 24, 0}};
  const SpmdAnswer given = answer();
  ASSERT_TRUE(alone.best && given.best);
  EXPECT_GT(given.considered, alone.considered);
  const auto hap = find_hap_plan(*study_);
  ASSERT_TRUE(hap);
  EXPECT_LE(given.best->step, hap->step);
  const SpmdChoices& choices = study_->choices({40, 24});
  const std::vector<DeviceId> pair = {DeviceId(0), DeviceId(2)};
  SpmdPrices prices = study_->prices(choices.space, pair, {40, 24});
  const TableSolution ways = choices.problem.solve(choices.problem.costs(prices, {}));
  const auto priced =
      price_sharding(*study_, pair, study_->sharding(choices, ways.choice, pair, {40, 24}));
  ASSERT_TRUE(priced) << priced.error().message;
  EXPECT_LE(given.best->step, priced->step);
}

TEST_F(SpmdSearchTest, NothingFitsSoItShowsTheNearest) {
  set_up(three_devices("kinds", "1MiB"));
  const SpmdAnswer found = answer();
  EXPECT_FALSE(found.best);
  EXPECT_TRUE(std::isfinite(found.lacking_step.value));
  ASSERT_TRUE(found.nearest);
  EXPECT_FALSE(found.nearest->fits());
  Bytes most;
  for (const Bytes peak : found.nearest->peaks) most = std::max(most, peak);
  EXPECT_EQ(found.nearest->lack, most - Bytes(1 << 20));
}

TEST(SpmdPlan, WhatFitsIsBetter) {
  const auto plan = [](double step, std::int64_t lack) {
    SpmdPlan made;
    made.step = Seconds(step);
    made.lack = Bytes(lack);
    return made;
  };
  EXPECT_TRUE(plan(9, 0).is_better_than(plan(1, 1)));
  EXPECT_FALSE(plan(1, 1).is_better_than(plan(9, 0)));
  EXPECT_TRUE(plan(1, 0).is_better_than(plan(2, 0)));
  EXPECT_FALSE(plan(2, 0).is_better_than(plan(2, 0)));
  EXPECT_TRUE(plan(9, 1).is_better_than(plan(1, 2)));  // both lack memory; this one less
  // By a tenth: 1.8 s is not enough against 2 s, 1.7 s is.
  EXPECT_FALSE(plan(1.8, 0).is_better_than(plan(2, 0), 0.1));
  EXPECT_TRUE(plan(1.7, 0).is_better_than(plan(2, 0), 0.1));
  EXPECT_FALSE(plan(1, 18).is_better_than(plan(1, 20), 0.1));
}

}  // namespace
}  // namespace motley::search
