#include "motley/synth/step/place.h"

#include <gtest/gtest.h>

namespace motley::synth {
namespace {

using Identical = Place::Identical;

// Shares 3, 1, 1 of 10 are 6, 2, 2 from 0, 6, 8; of 2: 1.2, 0.4, 0.4, rounded to 1, 1, 0.
class PlaceTest : public ::testing::Test {
 protected:
  const std::vector<double> shares_ = {3, 1, 1};
  Parts parts_{shares_};
  Place second_{parts_, 1};
};

TEST_F(PlaceTest, NothingWasAskedSoAllAreIdentical) {
  EXPECT_TRUE(second_.answers_identical(0, Identical::kProgram));
}

TEST_F(PlaceTest, WhoHasAsMuchIsIdentical) {
  EXPECT_EQ(second_.own(10), 2);
  EXPECT_TRUE(second_.answers_identical(2, Identical::kProgram));
  EXPECT_FALSE(second_.answers_identical(0, Identical::kTimes));
}

TEST_F(PlaceTest, EqualSharesMayBeRoundedToUnequalParts) {
  EXPECT_EQ(second_.own(2), 1);
  EXPECT_FALSE(second_.answers_identical(2, Identical::kTimes));
}

TEST_F(PlaceTest, WhereAPartBeginsIsInTheProgramAndTakesNoTime) {
  EXPECT_EQ(second_.own(10), 2);
  EXPECT_EQ(second_.begin(10), 6);
  EXPECT_FALSE(second_.answers_identical(2, Identical::kProgram));
  EXPECT_TRUE(second_.answers_identical(2, Identical::kTimes));
}

TEST_F(PlaceTest, TheKeeperIsIdenticalToNobody) {
  EXPECT_FALSE(second_.is_keeper());
  EXPECT_TRUE(second_.answers_identical(2, Identical::kTimes));
  EXPECT_FALSE(second_.answers_identical(0, Identical::kTimes));
  Place keeper(parts_, 0);
  EXPECT_TRUE(keeper.is_keeper());
  EXPECT_FALSE(keeper.answers_identical(1, Identical::kTimes));
}

}  // namespace
}  // namespace motley::synth
