#include "motley/search/spmd/owner_shares.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/random.h"
#include "motley/cost/profile_cost.h"

namespace motley::search {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::Pair;

/// Hosts of some planned GPUs each behind cards of so many Gbit/s, at one switch of 1 Tbit/s.
cluster::Cluster with_cards(const std::vector<double>& gigabits, int devices = 1) {
  std::string text = "schema = \"motley.cluster/1\"\nname = \"cards\"\n";
  for (std::size_t i = 0; i < gigabits.size(); ++i)
    text += fmt::format(
        "[[node]]\nname = \"n{}\"\nbandwidth = \"{}Gbps\"\n"
        "device = [ {{ kind = \"v100-16g\", count = {} }} ]\n",
        i, gigabits[i], devices);
  text += "[[link]]\nall = true\nbandwidth = \"1000Gbps\"\nlatency = \"1us\"\n";
  const auto cluster = cluster::parse_cluster(text, "cards.toml");
  EXPECT_TRUE(cluster) << cluster.error().message;
  return *cluster;
}

std::optional<OwnerShares> owners_of(const cluster::Cluster& cluster) {
  auto store = cost::ProfileStore::open(":memory:").value();
  const cost::ProfileCost model(cluster, {}, *cost::CollectiveTimes::build(store));
  std::vector<DeviceId> devices;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i)
    devices.emplace_back(static_cast<std::int64_t>(i));
  const auto found = find_shares_by_links(model, cluster, devices);
  EXPECT_TRUE(found) << found.error().message;
  return *found;
}

TEST(OwnerShares, TheQuickestCardOwnsAllWhereOthersAreMuchSlower) {
  const auto found = owners_of(with_cards({1, 4, 1}));
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, ElementsAre(Pair(DeviceId(1), DoubleNear(1, 1e-9))));
}

// The slowest card is full whoever of the others owns all: the quickest does.
TEST(OwnerShares, OfEqualOnesTheOneIsTakenThatLoadsLinksLeast) {
  const auto found = owners_of(with_cards({4, 2, 1}));
  ASSERT_TRUE(found);
  EXPECT_THAT(*found, ElementsAre(Pair(DeviceId(0), DoubleNear(1, 1e-6))));
}

TEST(OwnerShares, EqualCardsOwnEqualParts) {
  const auto found = owners_of(with_cards({1, 1, 1, 1}));
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 4U);
  for (const auto& [device, share] : *found) EXPECT_NEAR(share, 0.25, 1e-9);
}

/// The most that a card carries, relative to all bytes over the rate: 1 + (n - 2) p.
double fullest(const std::vector<double>& cards, const std::vector<double>& shares) {
  double most = 0;
  for (std::size_t d = 0; d < cards.size(); ++d)
    most = std::max(most, (1 + (static_cast<double>(cards.size()) - 2) * shares[d]) / cards[d]);
  return most;
}

/// BytePS: the least T such that caps (T b_d - 1) / (n - 2) of the shares come to 1.
double least_fullest(const std::vector<double>& cards) {
  double low = 0, high = 1e3;
  const double most = static_cast<double>(cards.size()) - 2;
  for (int i = 0; i < 200; ++i) {
    const double time = (low + high) / 2;
    double sum = 0;
    bool is_possible = true;
    for (const double card : cards) {
      is_possible = is_possible && time * card >= 1;
      sum += (time * card - 1) / most;
    }
    (is_possible && sum >= 1 ? high : low) = time;
  }
  return high;
}

TEST(OwnerShares, AreBytePSsOptimum) {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SplitMix64 random(seed);
    std::vector<double> cards;
    for (int d = 0; d < 3 + static_cast<int>(seed % 6); ++d)
      cards.push_back(1 + std::floor(20 * random.uniform()));
    const auto found = owners_of(with_cards(cards));
    ASSERT_TRUE(found);
    std::vector<double> shares(cards.size(), 0);
    for (const auto& [device, share] : *found) shares[device.index()] = share;
    EXPECT_NEAR(fullest(cards, shares), least_fullest(cards), 1e-6) << seed;
  }
}

TEST(OwnerShares, DevicesOfOneHostShareItsCard) {
  // Once a host is summed its card carries (1 + (3 - 2) p): the fast one owns all.
  const auto found = owners_of(with_cards({1, 4, 1}, 2));
  ASSERT_TRUE(found);
  double own = 0, all = 0;
  for (const auto& [device, share] : *found) {
    all += share;
    if (device == DeviceId(2) || device == DeviceId(3)) own += share;
  }
  EXPECT_NEAR(own, all, 1e-9);
}

TEST(OwnerShares, WithoutLinksThereAreNone) { EXPECT_FALSE(owners_of(with_cards({1}, 1))); }

}  // namespace
}  // namespace motley::search
