#include "motley/job/coordinator.h"

#include <gtest/gtest.h>

namespace motley::job {
namespace {

TEST(Coordinator, WhereNoneAreNothingIsLeftAndNobodyIsAsked) {
  Coordinator coordinator(false);
  const auto order = coordinator.first(Order(run::Change{}));
  EXPECT_TRUE(std::holds_alternative<run::Change>(order.value()));
  EXPECT_EQ(coordinator.may_lead(Seconds(1)), true);
}

TEST(Coordinator, TheyLearnOfAChangeBeforeWorkersDo) {
  Coordinator coordinator(true);
  // The first call replicates, whatever else there is to do.
  EXPECT_TRUE(std::holds_alternative<Leave>(coordinator.first(std::nullopt).value()));
  EXPECT_FALSE(coordinator.take_held());
  EXPECT_TRUE(std::holds_alternative<Halt>(coordinator.first(Order(Halt{1})).value()));
  run::Change change;
  change.number = 3;
  const auto left = coordinator.first(Order(change));
  EXPECT_TRUE(std::holds_alternative<Leave>(left.value()));
  const auto held = coordinator.take_held();
  EXPECT_EQ(std::get<run::Change>(held.value()).number, 3);
  EXPECT_FALSE(coordinator.take_held());
}

TEST(Coordinator, TheLeadIsAskedForOnceAStandstillAndGivesUpAfterAWhile) {
  Coordinator coordinator(true);
  EXPECT_EQ(coordinator.may_lead(Seconds(10)), std::nullopt);
  EXPECT_TRUE(coordinator.asks());
  EXPECT_EQ(coordinator.may_lead(Seconds(11)), std::nullopt);
  EXPECT_FALSE(coordinator.asks());
  EXPECT_EQ(coordinator.may_lead(Seconds(12.1)), false);
  coordinator.hear();
  EXPECT_EQ(coordinator.may_lead(Seconds(12.2)), true);
  coordinator.forget();
  EXPECT_EQ(coordinator.may_lead(Seconds(13)), std::nullopt);  // an earlier answer no longer counts
  EXPECT_TRUE(coordinator.asks());
}

}  // namespace
}  // namespace motley::job
