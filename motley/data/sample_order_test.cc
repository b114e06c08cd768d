#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <vector>

#include "motley/data/dataset.h"

namespace motley::data {
namespace {

std::vector<std::int64_t> epoch_of(const SampleOrder& order, std::int64_t samples,
                                   std::int64_t epoch) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < samples; ++i) result.push_back(order.at(epoch * samples + i));
  return result;
}

TEST(SampleOrder, WithoutShufflingIsThePositionModuloTheSamples) {
  const SampleOrder order(5, std::nullopt);
  EXPECT_EQ(order.at(0), 0);
  EXPECT_EQ(order.at(4), 4);
  EXPECT_EQ(order.at(5), 0);
  EXPECT_EQ(order.at(13), 3);
}

TEST(SampleOrder, OneSampleIsAlwaysTheSame) {
  const SampleOrder order(1, 7);
  EXPECT_EQ(order.at(0), 0);
  EXPECT_EQ(order.at(1000000), 0);
}

RC_GTEST_PROP(SampleOrderProperty, EachEpochIsAPermutation, ()) {
  const auto samples = *rc::gen::inRange<std::int64_t>(1, 700);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1 << 20);
  const auto order = epoch_of(SampleOrder(samples, seed), samples, epoch);
  const std::set<std::int64_t> seen(order.begin(), order.end());
  RC_ASSERT(static_cast<std::int64_t>(seen.size()) == samples);
  RC_ASSERT(*seen.begin() == 0);
  RC_ASSERT(*seen.rbegin() == samples - 1);
}

RC_GTEST_PROP(SampleOrderProperty, EpochsAndSeedsDiffer, ()) {
  const auto samples = *rc::gen::inRange<std::int64_t>(50, 300);
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const auto first = epoch_of(SampleOrder(samples, seed), samples, 0);
  RC_ASSERT(first != epoch_of(SampleOrder(samples, seed), samples, 1));
  RC_ASSERT(first != epoch_of(SampleOrder(samples, seed + 1), samples, 0));
  RC_ASSERT(first == epoch_of(SampleOrder(samples, seed), samples, 0));
}

// Each position of an epoch should hold each sample equally often. With 10 samples and 2,000 seeds
// the chi-square of a position has 9 degrees of freedom: mean 9, above 33.7 once in 10,000.
TEST(SampleOrder, PlacesAreUniformOverSeeds) {
  constexpr int kSamples = 10, kSeeds = 2000;
  for (int place = 0; place < kSamples; ++place) {
    std::vector<int> count(kSamples, 0);
    for (int seed = 0; seed < kSeeds; ++seed) {
      ++count[static_cast<std::size_t>(
          SampleOrder(kSamples, static_cast<std::uint64_t>(seed)).at(place))];
    }
    const double expected = static_cast<double>(kSeeds) / kSamples;
    double chi_square = 0;
    for (const int n : count) chi_square += (n - expected) * (n - expected) / expected;
    EXPECT_LT(chi_square, 33.7) << "place " << place;
  }
}

// Checkpoints promise this order. The numbers come from a second implementation, in Python.
TEST(SampleOrder, StaysAsItIs) {
  const SampleOrder order(8, 42);
  EXPECT_EQ(epoch_of(order, 8, 0), (std::vector<std::int64_t>{0, 5, 4, 7, 1, 2, 6, 3}));
  EXPECT_EQ(epoch_of(order, 8, 1), (std::vector<std::int64_t>{1, 5, 7, 6, 4, 3, 2, 0}));
  const SampleOrder large(1'000'000'000'007, (std::uint64_t{1} << 63) + 5);
  EXPECT_EQ(large.at(1'000'000'000'000'000), 124783162617);
}

}  // namespace
}  // namespace motley::data
