#include "motley/synth/stages/gradient_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <utility>

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

GradientHolder holder_on(std::size_t rank, std::int64_t begin, std::int64_t end,
                         std::int64_t ready) {
  GradientHolder made;
  made.share.rank = rank;
  made.share.ready = ready;
  made.begin = begin;
  made.end = end;
  return made;
}

/// Of a vector of so many rows.
SharedGradient vector_of(std::int64_t rows, std::vector<GradientHolder> holders) {
  return {std::move(holders), {1, rows, 1}};
}

GradientSums sums_of(std::vector<SharedGradient> gradients, std::int64_t bucket_bytes = 1 << 20,
                     const std::vector<double>& times = {}, std::int64_t busy = 0) {
  StagedStep step;
  step.stages.resize(1);
  step.stages[0].rate = 8;
  step.times = times;
  return find_gradient_sums(std::move(gradients),
                            {step, Bytes(bucket_bytes), [=](std::size_t) { return busy; }});
}

// Rank 0 has all rows, 1 the first four, 2 the others: two intervals, each summed by two.
TEST(GradientSums, CutWhereRowsOfHoldersEnd) {
  const std::vector<SharedGradient> gradients{
      vector_of(8, {holder_on(0, 0, 8, 5), holder_on(1, 0, 4, 3), holder_on(2, 4, 8, 7)})};
  const GradientSums sums = sums_of(gradients);
  ASSERT_EQ(sums.buckets.size(), 2U);
  EXPECT_THAT(sums.buckets[0].ranks, ElementsAre(0, 1));
  EXPECT_THAT(sums.buckets[1].ranks, ElementsAre(0, 2));
  EXPECT_THAT(sums.rows_of(sums.buckets[1].intervals[0]), ElementsAre(1, 4, 1));
  // Each packs when it has its own, the sum begins with the last of them.
  EXPECT_THAT(sums.buckets[0].packed, UnorderedElementsAre(Pair(0, 5), Pair(1, 3)));
  EXPECT_EQ(sums.buckets[0].begins, 5);
  EXPECT_EQ(sums.buckets[1].begins, 7);
  EXPECT_EQ(sums_of(gradients, 1 << 20, {}, 6).buckets[0].begins, 6);
}

// Two vectors of four f32 are 32 bytes.
TEST(GradientSums, TogetherInBucketsOfTheirSize) {
  const SharedGradient one = vector_of(4, {holder_on(0, 0, 4, 1), holder_on(1, 0, 4, 1)});
  EXPECT_EQ(sums_of({one, one}, 32).buckets.size(), 1U);
  EXPECT_EQ(sums_of({one, one}, 31).buckets.size(), 2U);
}

TEST(GradientSums, IntervalsOfOwnersAreInTheirOrder) {
  SharedGradient gradient = vector_of(8, {holder_on(0, 0, 8, 1), holder_on(1, 0, 8, 1)});
  gradient.has_owners = true;
  std::tie(gradient.holders[0].own_begin, gradient.holders[0].own_count) = std::pair(3, 5);
  std::tie(gradient.holders[1].own_begin, gradient.holders[1].own_count) = std::pair(0, 3);
  const GradientSums sums = sums_of({gradient});
  ASSERT_EQ(sums.buckets.size(), 1U);
  EXPECT_THAT(sums.owned_elements(sums.buckets[0]), ElementsAre(5, 3));
  EXPECT_EQ(sums.intervals[sums.buckets[0].intervals[0]].begin, 3);
}

// 16 bytes go out and come back at 8 a unit of time: rank 0 is free at 4, so that what ranks 2 and
// 3 have at 2 comes before what 0 and 2 have at 1.
TEST(GradientSums, TheOneThatCanBeginFirstDoes) {
  const auto of = [](std::size_t a, std::size_t b, std::int64_t ready) {
    return vector_of(4, {holder_on(a, 0, 4, ready), holder_on(b, 0, 4, ready)});
  };
  const GradientSums sums = sums_of({of(0, 1, 0), of(0, 2, 1), of(2, 3, 2)}, 1 << 20, {0, 1, 2});
  ASSERT_EQ(sums.buckets.size(), 3U);
  EXPECT_THAT(sums.buckets[1].ranks, ElementsAre(2, 3));
  EXPECT_THAT(sums.buckets[2].ranks, ElementsAre(0, 2));
  EXPECT_EQ(sums.buckets[2].begins, 2);  // positions keep the order
}

}  // namespace
}  // namespace motley::synth
