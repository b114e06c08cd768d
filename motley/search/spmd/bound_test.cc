#include "motley/search/spmd/bound.h"

#include <gtest/gtest.h>

#include <limits>

#include "motley/base/random.h"
#include "motley/search/spmd/price_sharding.h"
#include "motley/search/spmd/spmd_search.h"
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

}  // namespace
}  // namespace motley::search
