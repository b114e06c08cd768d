#include "motley/elastic/renting_plan.h"

#include <gtest/gtest.h>

namespace motley::elastic {
namespace {

constexpr double kHourOfWork = 3600;
constexpr RentingTerms kTerms{1, 3, Seconds(0), Seconds(60)};

SpotBelief belief(double leaves_per_hour, double returns_per_hour) {
  return {{{Seconds(0)}, {leaves_per_hour / kHourOfWork}}, returns_per_hour / kHourOfWork};
}

TEST(RentingPlan, PaysSpotPricesWhereNothingIsEverLost) {
  const RentingPlan plan(kTerms, belief(0, 0), Seconds(10 * kHourOfWork),
                         Seconds(10 * kHourOfWork));
  const RentingPlan::Place there{Seconds(10 * kHourOfWork), Seconds(5 * kHourOfWork),
                                 Holding::kNothing, true, Seconds(0)};
  EXPECT_NEAR(plan.cost(there), 10, 1e-9);
  EXPECT_EQ(plan.best(there), Holding::kSpot);
  // None is available and none comes: on demand, at 3 per hour.
  const RentingPlan::Place none{Seconds(10 * kHourOfWork), Seconds(5 * kHourOfWork)};
  EXPECT_NEAR(plan.cost(none), 30, 1e-9);
}

TEST(RentingPlan, WaitsOnlyWhereSpotMachinesReturn) {
  const RentingPlan::Place none{Seconds(10 * kHourOfWork), Seconds(8 * kHourOfWork)};
  const RentingPlan soon(kTerms, belief(0.1, 2), Seconds(10 * kHourOfWork),
                         Seconds(10 * kHourOfWork));
  EXPECT_EQ(soon.best(none), Holding::kNothing);
  const RentingPlan no_slack(kTerms, belief(0.1, 2), Seconds(10 * kHourOfWork),
                             Seconds(10 * kHourOfWork));
  EXPECT_EQ(no_slack.best({Seconds(10 * kHourOfWork), Seconds(0)}), Holding::kOnDemand);
}

TEST(RentingPlan, AHazardCostsWhatWaitingAndOnDemandCost) {
  // With losses and no return, an hour of work costs 1 while spot lasts and 3 after it. Rate 0.5
  // per hour, 2 h of work: E[min(life, 2)] = (1 - e^-1) / 0.5 = 1.264, so 1.264 + 3 (2 - 1.264) =
  // 3.472. Losses count at the ends of cells of 1/80 h: 0.3 %.
  const RentingPlan plan(kTerms, belief(0.5, 0), Seconds(2 * kHourOfWork),
                         Seconds(2 * kHourOfWork));
  const RentingPlan::Place there{Seconds(2 * kHourOfWork), Seconds(1 * kHourOfWork), Holding::kSpot,
                                 true, Seconds(0)};
  EXPECT_NEAR(plan.cost(there), 3.472, 0.02);
}

TEST(RentingPlan, OldMachinesAreWorthMoreWhereTheHazardFalls) {
  const SpotBelief falling{
      {{Seconds(0), Seconds(kHourOfWork)}, {1 / kHourOfWork, 0.01 / kHourOfWork}}, 0};
  const RentingPlan plan(kTerms, falling, Seconds(10 * kHourOfWork), Seconds(10 * kHourOfWork));
  const auto at_age = [&](double hours) {
    return plan.cost({Seconds(10 * kHourOfWork), Seconds(4 * kHourOfWork), Holding::kSpot, true,
                      Seconds(hours * kHourOfWork)});
  };
  EXPECT_LT(at_age(2), at_age(0));
}

}  // namespace
}  // namespace motley::elastic
