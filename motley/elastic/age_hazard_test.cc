#include "motley/elastic/age_hazard.h"

#include <gmock/gmock.h>

namespace motley::elastic {
namespace {

using ::testing::ElementsAre;

const AgeHazard kFalling{{Seconds(0), Seconds(10), Seconds(30)}, {0.5, 0.25, 0.125}};

TEST(AgeHazard, AddsUpOverAges) {
  // 5 s of 0.5, 20 s of 0.25, 10 s of 0.125.
  EXPECT_DOUBLE_EQ(kFalling.between(Seconds(5), Seconds(40)), 2.5 + 5 + 1.25);
  EXPECT_DOUBLE_EQ(kFalling.between(Seconds(12), Seconds(12)), 0);
  EXPECT_DOUBLE_EQ(kFalling.at(Seconds(10)), 0.25);
}

TEST(AgeHazard, KnowsWhatWasSpentInEachPiece) {
  EXPECT_THAT(spent_in(kFalling.ages, Seconds(5), Seconds(35)), ElementsAre(5, 20, 5));
}

TEST(AgeHazard, UsualKindsAreCountsOverHours) {
  // K80, second hour: no loss in 123 h; all kinds 0 + 14 + 11 in 123 + 94 + 76.5 = 293.5 h.
  const double pooled = 25 / 293.5;
  EXPECT_NEAR(usual_hazard("k80").hazard.at(Seconds(5400)), 50 * pooled / 173 / 3600, 1e-15);
  EXPECT_NEAR(usual_hazard("v100-16g").hazard.at(Seconds(5400)), (11 + 50 * pooled) / 126.5 / 3600,
              1e-15);
  EXPECT_NEAR(usual_hazard("h100").hazard.at(Seconds(5400)), pooled / 3600, 1e-15);
  EXPECT_DOUBLE_EQ(usual_hazard("k80").losses[1], 12.5);
}

}  // namespace
}  // namespace motley::elastic
