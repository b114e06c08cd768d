#include "motley/synth/state/state_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "motley/base/random.h"

namespace motley::synth {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(ShareRows, InProportion) {
  EXPECT_THAT(*share_rows({{0, 8, 1}, {0, 8, 3}}, 8), ElementsAre(Pair(0, 2), Pair(2, 6)));
  // A holder without a share owns no rows if others have them.
  EXPECT_THAT(*share_rows({{0, 8, 1}, {0, 8, 0}, {0, 8, 1}}, 8),
              ElementsAre(Pair(0, 4), Pair(4, 0), Pair(4, 4)));
}

TEST(ShareRows, OfThoseThatEachHas) {
  // One has all rows, two have halves: of the first half, the second and the first own two each.
  EXPECT_THAT(*share_rows({{0, 8, 1}, {0, 4, 1}, {4, 8, 2}}, 8),
              ElementsAre(Pair(2, 2), Pair(0, 2), Pair(4, 4)));
  // Only the second has the last two rows, whatever its share.
  EXPECT_THAT(*share_rows({{0, 6, 1}, {4, 8, 0}}, 8), ElementsAre(Pair(0, 6), Pair(6, 2)));
  EXPECT_THAT(*share_rows({{0, 8, 0}, {0, 4, 0}, {4, 8, 1}}, 8),
              ElementsAre(Pair(0, 4), Pair(0, 0), Pair(4, 4)));
}

TEST(ShareRows, NoneWhereSomebodysRowsAreWithinAnothers) {
  EXPECT_FALSE(share_rows({{0, 8, 1}, {1, 3, 1}}, 8));
}

TEST(ShareRows, EveryRowHasAnOwner) {
  SplitMix64 random(1);
  for (int i = 0; i < 500; ++i) {
    const auto extent = static_cast<std::int64_t>(1 + random.below(40));
    std::vector<OwnerRows> holders;
    for (std::uint64_t replica = 1 + random.below(4); replica > 0; --replica)
      for (std::int64_t at = 0; at < extent;) {
        const auto count = static_cast<std::int64_t>(1 + random.below(40));
        const std::int64_t end = std::min(extent, at + count);
        holders.push_back({at, end, static_cast<double>(random.below(4))});
        at = end;
      }
    const auto owned = share_rows(holders, extent);
    ASSERT_TRUE(owned) << i;
    std::vector<int> owners(static_cast<std::size_t>(extent), 0);
    for (std::size_t h = 0; h < holders.size(); ++h) {
      const auto& [begin, count] = (*owned)[h];
      for (std::int64_t row = begin; row < begin + count; ++row) {
        ++owners[static_cast<std::size_t>(row)];
        EXPECT_TRUE(holders[h].begin <= row && row < holders[h].end) << i;
      }
    }
    EXPECT_THAT(owners, ::testing::Each(1)) << i;
  }
}

}  // namespace
}  // namespace motley::synth
