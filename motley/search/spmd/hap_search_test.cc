#include "motley/search/spmd/hap_search.h"

#include <gtest/gtest.h>

#include <numeric>

#include "motley/testing/wide_mlp.h"

namespace motley::search {
namespace {

class HapSearchTest : public WideMlpTest {
 protected:
  SpmdStudy study(int width, std::int64_t batch) {
    set_up(width, "", batch);
    question_ = {&model_.graph, &cluster_, &costs_, {}, batch, problem_.devices, {}};
    auto made = SpmdStudy::make(question_);
    EXPECT_TRUE(made) << made.error().message;
    return *std::move(made);
  }

  /// Returns HAP's cost of the best ways for shares, and these ways.
  std::pair<double, synth::Sharding> best_ways(SpmdStudy& study,
                                               const std::vector<double>& shares) {
    const SpmdChoices& choices = study.choices(shares);
    SpmdPrices prices = study.prices(choices.space, problem_.devices, shares);
    const TableSolution solution = choices.problem.solve(choices.problem.costs(prices, {}));
    return {solution.cost, study.sharding(choices, solution.choice, problem_.devices, shares)};
  }

  SpmdQuestion question_;
};

TEST_F(HapSearchTest, EndsNoWorseThanItBegins) {
  for (const int width : {64, 1024, 4096}) {
    SpmdStudy made = study(width, 64);
    const auto found = find_hap_plan(made);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->devices, problem_.devices);
    const std::vector<double>& shares = found->sharding.shares;
    EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-9);
    const auto [cost, ways] = best_ways(made, shares);
    EXPECT_EQ(found->sharding.ops, ways.ops) << width;
    EXPECT_EQ(found->sharding.sources, ways.sources) << width;
    const std::vector<double> speeds = made.speeds();
    const double all = speeds[0] + speeds[1];
    EXPECT_LE(cost, best_ways(made, {speeds[0] / all, speeds[1] / all}).first * (1 + 1e-12));
  }
}

TEST_F(HapSearchTest, SharesFollowSpeedWhereComputeIsAll) {
  SpmdStudy made = study(256, 65536);
  const auto found = find_hap_plan(made);
  ASSERT_TRUE(found) << found.error().message;
  const std::vector<double> speeds = made.speeds();
  EXPECT_NEAR(found->sharding.shares[0], speeds[0] / (speeds[0] + speeds[1]), 1e-9);
}

}  // namespace
}  // namespace motley::search
