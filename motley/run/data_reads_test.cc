#include "motley/run/data_reads.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace motley::run {
namespace {

// Batches of 60, of which three ranks take 30, 20 and 10.
BatchKind thirds() {
  BatchKind kind{60, {{}, {}, {}}};
  for (std::int64_t place = 0; place < 60; ++place)
    kind.places[place < 30 ? 0 : place < 50 ? 1 : 2].push_back(place);
  return kind;
}

DataReads reads(std::int64_t batches, int rank, std::optional<std::uint64_t> shuffle) {
  return {.order = BatchOrder::endless(thirds(), 0, 0),
          .batches = batches,
          .ranks = {rank},
          .samples = 600,
          .shuffle = shuffle};
}

// An epoch is ten batches: every sample is read by one rank.
TEST(DataReadsTest, OfOneEpochAllRanksTogetherReadEachSampleOnce) {
  for (const std::optional<std::uint64_t> shuffle : {std::optional<std::uint64_t>(), {7}}) {
    std::vector<int> readers(600);
    for (int rank = 0; rank < 3; ++rank) {
      const auto found = find_samples(reads(10, rank, shuffle), 0.9).value();
      EXPECT_EQ(found.count(), rank == 0 ? 300 : rank == 1 ? 200 : 100);
      for (std::int64_t i = found.next(0); i < 600; i = found.next(i + 1)) ++readers[i];
    }
    EXPECT_EQ(readers, std::vector<int>(600, 1));
  }
}

TEST(DataReadsTest, WithoutShufflingEpochsReadTheSame) {
  EXPECT_EQ(find_samples(reads(1000, 2, {}), 0.9)->count(), 100);
}

// 1 - (5/6)^2 of the samples after two epochs; 95 % after 17, so they are not enumerated.
TEST(DataReadsTest, WithShufflingEpochsReadOthers) {
  EXPECT_NEAR(static_cast<double>(find_samples(reads(20, 2, 7), 0.9)->count()), 600 * 11 / 36., 25);
  EXPECT_FALSE(find_samples(reads(170, 2, 7), 0.9).has_value());
  EXPECT_FALSE(find_samples(reads(1'000'000'000, 2, 7), 0.9).has_value());
}

TEST(DataReadsTest, EvaluationsReadWhatIsLeftAfterWholeBatches) {
  const BatchKind rest{30, {{0, 1, 2}, {}, {29}}};
  const BatchOrder order = BatchOrder::passes_over({thirds(), rest}, 630);
  EXPECT_EQ(order.batches_in_pass(), 11);
  const auto found = find_samples(
      {.order = order, .batches = order.batches_in_pass(), .ranks = {1, 2}, .samples = 630}, 0.9);
  EXPECT_EQ(found->count(), 301);
  EXPECT_TRUE(found->has(629));
  EXPECT_FALSE(found->has(600));
}

TEST(DataReadsTest, OtherReadsHaveOtherKeys) {
  const std::string key = reads_key(reads(10, 2, 7));
  EXPECT_EQ(key, reads_key(reads(10, 2, 7)));
  EXPECT_NE(key, reads_key(reads(11, 2, 7)));
  EXPECT_NE(key, reads_key(reads(10, 1, 7)));
  EXPECT_NE(key, reads_key(reads(10, 2, {})));
}

}  // namespace
}  // namespace motley::run
