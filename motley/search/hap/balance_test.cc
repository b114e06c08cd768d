#include "motley/search/hap/balance.h"

#include <gtest/gtest.h>

#include <numeric>

#include "motley/base/random.h"

namespace motley::search {
namespace {

HapCluster cluster_of(std::vector<double> speeds) {
  HapCluster cluster;
  cluster.device_flops = std::move(speeds);
  return cluster;
}

LinearTime time_of(double flops, double padded_s) {
  return {.shared_flops = flops, .whole_flops = 1e6, .padded_s = padded_s, .constant_s = 1e6};
}

double variable_seconds(const LinearTime& time, const Shares& shares, const HapCluster& cluster) {
  const ShareEffect effect = effect_of(shares, cluster);
  return time.shared_flops * effect.per_shared_flop + time.padded_s * effect.padding;
}

TEST(Balance, WeighsSpeedAgainstPadding) {
  const HapCluster cluster = cluster_of({3, 1});
  EXPECT_EQ(balance(time_of(6, 0), cluster), (Shares{0.75, 0.25}));
  EXPECT_EQ(balance(time_of(6, 2), cluster), (Shares{0.75, 0.25}));  // 4.5 s against 5 s
  EXPECT_EQ(balance(time_of(6, 4), cluster), (Shares{0.5, 0.5}));    // 7.5 s against 7 s
}

TEST(Balance, MayCapTheFastestOnly) {
  // Speeds 4, 2, 1: even (7 + 3 c) / 3, capped at 2 (7 + 6 c) / 5, proportional (7 + 12 c) / 7. At
  // 3 c = 2 these are 3, 2.2, 2.14; at 3 c = 4: 3.67, 3, 3.29: the middle one.
  EXPECT_EQ(balance(time_of(7, 4.0 / 3), cluster_of({4, 2, 1})), (Shares{0.4, 0.4, 0.2}));
}

TEST(Balance, NoSharesAreBetter) {
  SplitMix64 random(1);
  for (int round = 0; round < 300; ++round) {
    const std::size_t devices = 1 + random.below(6), kinds = 1 + random.below(4);
    std::vector<double> kind_speeds, speeds;
    for (std::size_t i = 0; i < kinds; ++i) kind_speeds.push_back(0.1 + random.uniform());
    for (std::size_t i = 0; i < devices; ++i) speeds.push_back(kind_speeds[random.below(kinds)]);
    const HapCluster cluster = cluster_of(speeds);
    const LinearTime time = time_of(random.uniform(), 3 * random.uniform() * random.uniform());
    const Shares best = balance(time, cluster);
    EXPECT_NEAR(std::accumulate(best.begin(), best.end(), 0.0), 1, 1e-12);
    const double least = variable_seconds(time, best, cluster);
    for (int other = 0; other < 500; ++other) {
      // Near the answer and far from it.
      const double distance = other % 2 == 0 ? 1 : 0.05;
      Shares shares;
      for (const double share : best)
        shares.push_back((1 - distance) * share + distance * random.uniform());
      const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
      for (double& share : shares) share /= sum;
      ASSERT_GE(variable_seconds(time, shares, cluster), least * (1 - 1e-12));
    }
  }
}

}  // namespace
}  // namespace motley::search
