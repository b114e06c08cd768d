#include "motley/search/spmd/balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "motley/base/random.h"

namespace motley::search {
namespace {

using Shares = std::vector<double>;

double variable_seconds(double shared, double padded, const Shares& shares, const Shares& speeds) {
  double slowest = 0;
  for (std::size_t i = 0; i < shares.size(); ++i)
    slowest = std::max(slowest, shares[i] / speeds[i]);
  return shared * slowest + padded * static_cast<double>(shares.size()) *
                                *std::max_element(shares.begin(), shares.end());
}

TEST(Balance, WeighsSpeedAgainstPadding) {
  EXPECT_EQ(balance({3, 1}, 6, 0), (Shares{0.75, 0.25}));
  EXPECT_EQ(balance({3, 1}, 6, 2), (Shares{0.75, 0.25}));  // 4.5 s against 5 s
  EXPECT_EQ(balance({3, 1}, 6, 4), (Shares{0.5, 0.5}));    // 7.5 s against 7 s
}

TEST(Balance, MayCapTheFastestOnly) {
  // Speeds 4, 2, 1: even (7 + 3 c) / 3, capped at 2 (7 + 6 c) / 5, proportional (7 + 12 c) / 7. At
  // 3 c = 2 these are 3, 2.2, 2.14; at 3 c = 4: 3.67, 3, 3.29: the middle one.
  EXPECT_EQ(balance({4, 2, 1}, 7, 4.0 / 3), (Shares{0.4, 0.4, 0.2}));
}

TEST(Balance, NoSharesAreBetter) {
  SplitMix64 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::size_t devices = 1 + random.below(6), kinds = 1 + random.below(4);
    Shares kind_speeds, speeds;
    for (std::size_t i = 0; i < kinds; ++i) kind_speeds.push_back(0.1 + random.uniform());
    for (std::size_t i = 0; i < devices; ++i) speeds.push_back(kind_speeds[random.below(kinds)]);
    const double shared = random.uniform(), padded = 3 * random.uniform() * random.uniform();
    const Shares best = balance(speeds, shared, padded);
    EXPECT_NEAR(std::accumulate(best.begin(), best.end(), 0.0), 1, 1e-12);
    const double least = variable_seconds(shared, padded, best, speeds);
    for (int other = 0; other < 500; ++other) {
      // near the answer and far from it
      const double distance = other % 2 == 0 ? 1 : 0.05;
      Shares shares;
      for (const double share : best)
        shares.push_back((1 - distance) * share + distance * random.uniform());
      const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
      for (double& share : shares) share /= sum;
      ASSERT_GE(variable_seconds(shared, padded, shares, speeds), least * (1 - 1e-12));
    }
  }
}

}  // namespace
}  // namespace motley::search
