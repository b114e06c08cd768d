#include "motley/control/training/availability_trace.h"

#include <gmock/gmock.h>

namespace motley::control {
namespace {

using ::testing::ElementsAre;

constexpr trace::Nanoseconds kSecond = 1'000'000'000;

TEST(AvailabilityTrace, GoesFromEventToEvent) {
  // Two absences of b touch and become one; c never returns.
  AvailabilityTrace availability({{"b", Seconds(2), Seconds(3)},
                                  {"c", Seconds(1)},
                                  {"b", Seconds(3), Seconds(5)},
                                  {"b", Seconds(7), Seconds(8)}});
  ASSERT_NE(availability.next(), nullptr);
  EXPECT_EQ(*availability.next(),
            (AvailabilityTrace::Event{1 * kSecond, "c", AvailabilityTrace::What::kLoss}));
  EXPECT_EQ(*availability.find_loss({"b"}),
            (AvailabilityTrace::Event{2 * kSecond, "b", AvailabilityTrace::What::kLoss}));
  EXPECT_EQ(availability.find_loss({"a"}), nullptr);
  availability.take();
  EXPECT_THAT(availability.gone(), ElementsAre("c"));
  EXPECT_EQ(availability.take(),
            (AvailabilityTrace::Event{2 * kSecond, "b", AvailabilityTrace::What::kLoss}));
  EXPECT_THAT(availability.gone(), ElementsAre("b", "c"));
  EXPECT_EQ(availability.take(),
            (AvailabilityTrace::Event{5 * kSecond, "b", AvailabilityTrace::What::kArrival}));
  EXPECT_EQ(*availability.find_loss({"b", "c"}),
            (AvailabilityTrace::Event{7 * kSecond, "b", AvailabilityTrace::What::kLoss}));
  availability.take();
  availability.take();
  EXPECT_THAT(availability.gone(), ElementsAre("c"));
  EXPECT_EQ(availability.next(), nullptr);
}

}  // namespace
}  // namespace motley::control
