#include "motley/search/spmd/best_mix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "motley/base/random.h"

namespace motley::search {
namespace {

TEST(BestMix, EvensOutTwoRows) {
  const Mix mix = best_mix({{1, 3}, {3, 1}});
  EXPECT_NEAR(mix.weights[0], 0.5, 1e-12);
  EXPECT_NEAR(mix.least, 2, 1e-12);
}

// Both rows are larger in the second column, also the one that is the least there.
TEST(BestMix, OneColumnMayBeBest) {
  const Mix mix = best_mix({{1, 4}, {2, 5}});
  EXPECT_NEAR(mix.weights[1], 1, 1e-12);
  EXPECT_NEAR(mix.least, 4, 1e-12);
}

TEST(BestMix, IsNoWorseThanAnyWeightsOfAGrid) {
  SplitMix64 random(7);
  for (int draw = 0; draw < 200; ++draw) {
    std::vector<std::vector<double>> rows(1 + random.below(5));
    for (std::vector<double>& row : rows) {
      for (int c = 0; c < 3; ++c) row.push_back(random.below(3) == 0 ? 0 : random.uniform() * 100);
      row[random.below(3)] += 1;
    }
    const Mix mix = best_mix(rows);
    EXPECT_NEAR(mix.weights[0] + mix.weights[1] + mix.weights[2], 1, 1e-9);
    for (int a = 0; a <= 10; ++a)
      for (int b = 0; a + b <= 10; ++b) {
        double least = 1e9;
        for (const std::vector<double>& row : rows)
          least = std::min(least, (a * row[0] + b * row[1] + (10 - a - b) * row[2]) / 10);
        EXPECT_LE(least, mix.least + 1e-9);
      }
  }
}

}  // namespace
}  // namespace motley::search
