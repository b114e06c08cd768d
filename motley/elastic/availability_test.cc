#include "motley/elastic/availability.h"

#include <gmock/gmock.h>

namespace motley::elastic {
namespace {

using ::testing::ElementsAre;

constexpr Seconds kForever{std::numeric_limits<double>::infinity()};

double five_each(const std::vector<std::size_t>& present) {
  return 5.0 * static_cast<double>(present.size());
}

TEST(Availability, SpansLieBetweenChanges) {
  const auto spans = spans_of({{Seconds(0)}, {Seconds(0), Seconds(10)}, {Seconds(4), Seconds(10)}});
  ASSERT_TRUE(spans.has_value());
  EXPECT_THAT(*spans, ElementsAre(AvailabilitySpan{Seconds(0), Seconds(4), {0, 1}},
                                  AvailabilitySpan{Seconds(4), Seconds(10), {0, 1, 2}},
                                  AvailabilitySpan{Seconds(10), kForever, {0}}));
}

TEST(Availability, ReplayGoesOnSlowerWithoutTheOneThatLeft) {
  // 10 s at 10 steps/s, then 100 steps at 5: 10 + 20.
  EXPECT_DOUBLE_EQ(replay({{Seconds(0)}, {Seconds(0), Seconds(10)}}, 200, five_each)->value, 30);
  // Done before the departure: 60 / 10.
  EXPECT_DOUBLE_EQ(replay({{Seconds(0)}, {Seconds(0), Seconds(10)}}, 60, five_each)->value, 6);
}

TEST(Availability, ReplayWaitsForWhoComesLater) {
  // No one until 7 s, then 5 steps/s; from 9 s on 10: 10 steps by 9 s, 30 more in 3 s.
  EXPECT_DOUBLE_EQ(replay({{Seconds(7)}, {Seconds(9)}}, 40, five_each)->value, 12);
}

TEST(Availability, ReplayNeverEndsWithoutWorkers) {
  EXPECT_EQ(*replay({{Seconds(0), Seconds(10)}}, 51, five_each), kForever);
  EXPECT_EQ(*replay({}, 1, five_each), kForever);
  EXPECT_EQ(*replay({}, 0, five_each), Seconds(0));
}

TEST(Availability, SpeedSeesWhoIsThere) {
  // The second alone does 2 steps/s.
  const auto speed = [](const std::vector<std::size_t>& present) {
    return present == std::vector<std::size_t>{1} ? 2.0 : 8.0;
  };
  // 8 steps in the first second, then 8 more at 2 steps/s: 1 + 4.
  EXPECT_DOUBLE_EQ(replay({{Seconds(0), Seconds(1)}, {Seconds(0)}}, 16, speed)->value, 5);
}

TEST(Availability, RefusesWhoLeavesBeforeComing) {
  EXPECT_EQ(spans_of({{Seconds(0)}, {Seconds(3), Seconds(2)}}).error().message,
            "worker 1: there from 3 s to 2 s, wanted 0 <= from <= to");
  EXPECT_EQ(spans_of({{Seconds(-1)}}).error().message,
            "worker 0: there from -1 s to inf s, wanted 0 <= from <= to");
}

}  // namespace
}  // namespace motley::elastic
