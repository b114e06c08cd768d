#include "motley/control/training/presence.h"

#include <gmock/gmock.h>

namespace motley::control {
namespace {

using ::testing::ElementsAre;

constexpr trace::Nanoseconds kSecond = 1'000'000'000;

TEST(Presence, GoesFromEventToEvent) {
  // Of b two absences touch and are one; c never comes back.
  Presence presence({{"b", Seconds(2), Seconds(3)},
                     {"c", Seconds(1)},
                     {"b", Seconds(3), Seconds(5)},
                     {"b", Seconds(7), Seconds(8)}});
  ASSERT_NE(presence.next(), nullptr);
  EXPECT_EQ(*presence.next(), (Presence::Event{1 * kSecond, "c", Presence::What::kLoss}));
  EXPECT_EQ(*presence.find_loss({"b"}), (Presence::Event{2 * kSecond, "b", Presence::What::kLoss}));
  EXPECT_EQ(presence.find_loss({"a"}), nullptr);
  presence.take();
  EXPECT_THAT(presence.gone(), ElementsAre("c"));
  EXPECT_EQ(presence.take(), (Presence::Event{2 * kSecond, "b", Presence::What::kLoss}));
  EXPECT_THAT(presence.gone(), ElementsAre("b", "c"));
  EXPECT_EQ(presence.take(), (Presence::Event{5 * kSecond, "b", Presence::What::kArrival}));
  EXPECT_EQ(*presence.find_loss({"b", "c"}),
            (Presence::Event{7 * kSecond, "b", Presence::What::kLoss}));
  presence.take();
  presence.take();
  EXPECT_THAT(presence.gone(), ElementsAre("c"));
  EXPECT_EQ(presence.next(), nullptr);
}

}  // namespace
}  // namespace motley::control
