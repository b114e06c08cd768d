#include "motley/run/launch/processors.h"

#include <gtest/gtest.h>

namespace motley::run {
namespace {

using Places = std::vector<int>;

TEST(PlaceOnProcessors, LargestFirstToWhereMostIsLeft) {
  EXPECT_EQ(place_on_processors({0.2, 0.8, 0.4}, {0, 1}), (Places{1, 0, 1}));
  EXPECT_EQ(place_on_processors({0.5, 0.5, 0.5, 0.5}, {3, 7}), (Places{3, 7, 3, 7}));
  EXPECT_EQ(place_on_processors({1.0, 1.0}, {0, 1, 2}), (Places{0, 1}));
}

TEST(PlaceOnProcessors, NoneWhenTheyDoNotFit) {
  EXPECT_TRUE(place_on_processors({0.8, 0.8, 0.4}, {0, 1}).empty());
  EXPECT_TRUE(place_on_processors({0.1}, {}).empty());
}

TEST(PlaceOnProcessors, ThisProcessHasSome) { EXPECT_FALSE(usable_processors().empty()); }

}  // namespace
}  // namespace motley::run
