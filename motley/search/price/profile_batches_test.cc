#include "motley/search/price/profile_batches.h"

#include <gmock/gmock.h>

namespace motley::search {
namespace {

using ::testing::ElementsAre;

TEST(ProfileBatches, PowersOfTwoAndTheLargest) {
  EXPECT_THAT(profile_batches(40, 4096), ElementsAre(1, 2, 4, 8, 16, 32, 40));
  EXPECT_THAT(profile_batches(64, 4096), ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(profile_batches(64, 12), ElementsAre(1, 2, 4, 8, 12));
  EXPECT_THAT(profile_batches(3, 8), ElementsAre(1, 2, 3));
  EXPECT_THAT(profile_batches(2, 8), ElementsAre(1, 2));
  EXPECT_THAT(profile_batches(1, 8), ElementsAre(1));
}

}  // namespace
}  // namespace motley::search
