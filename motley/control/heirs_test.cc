#include "motley/control/heirs.h"

#include <gtest/gtest.h>

namespace motley::control {
namespace {

Json will() { return {{"plans", 1}}; }

TEST(Heirs, WhereNoneAreNothingIsLeftAndNobodyIsAsked) {
  Heirs heirs(false);
  const auto order = heirs.first(Order(run::Change{}), will);
  EXPECT_TRUE(std::holds_alternative<run::Change>(order.value()));
  EXPECT_EQ(heirs.may_lead(Seconds(1)), true);
}

TEST(Heirs, TheyLearnOfAChangeBeforeWorkersDo) {
  Heirs heirs(true);
  // Something at the beginning, whatever else there is to do.
  EXPECT_TRUE(std::holds_alternative<Leave>(heirs.first(std::nullopt, will).value()));
  EXPECT_FALSE(heirs.take_held());
  EXPECT_TRUE(std::holds_alternative<Halt>(heirs.first(Order(Halt{1}), will).value()));
  run::Change change;
  change.number = 3;
  const auto left = heirs.first(Order(change), will);
  EXPECT_EQ(std::get<Leave>(left.value()).what, will());
  const auto held = heirs.take_held();
  EXPECT_EQ(std::get<run::Change>(held.value()).number, 3);
  EXPECT_FALSE(heirs.take_held());
}

TEST(Heirs, TheLeadIsAskedForOnceAStandstillAndGivesUpAfterAWhile) {
  Heirs heirs(true);
  EXPECT_EQ(heirs.may_lead(Seconds(10)), std::nullopt);
  EXPECT_TRUE(heirs.asks());
  EXPECT_EQ(heirs.may_lead(Seconds(11)), std::nullopt);
  EXPECT_FALSE(heirs.asks());
  EXPECT_EQ(heirs.may_lead(Seconds(12.1)), false);
  heirs.hear();
  EXPECT_EQ(heirs.may_lead(Seconds(12.2)), true);
  heirs.forget();
  EXPECT_EQ(heirs.may_lead(Seconds(13)), std::nullopt);  // what was heard before is old
  EXPECT_TRUE(heirs.asks());
}

}  // namespace
}  // namespace motley::control
