#include "motley/elastic/mix.h"

#include <gmock/gmock.h>

#include <cmath>

namespace motley::elastic {
namespace {

Offer offer(const std::string& zone, bool is_spot, double price, int most) {
  Offer made{.kind = "v100",
             .zone = zone,
             .region = zone,
             .is_spot = is_spot,
             .price_per_hour = price,
             .most = most};
  made.start = {Seconds(100), Seconds(10)};
  return made;
}

/// One step per second and machine.
double one_each(const Mix& mix) {
  int sum = 0;
  for (const int machines : mix.machines) sum += machines;
  return sum;
}

std::optional<PricedMix> price(const Market& market, const Mix& mix, const MixJob& job) {
  return price_mix(market, mix, Lifetimes().forecast(Seconds(0)), one_each, job);
}

TEST(Mixes, RegionsStayApart) {
  Market market;
  market.offers = {offer("west", true, 1, 2), offer("west", false, 3, 1),
                   offer("east", true, 1, 2)};
  // West: 3 numbers times 2, without none at all: 5. East: 2.
  const auto mixes = find_mixes(market);
  ASSERT_TRUE(mixes.has_value());
  EXPECT_EQ(mixes->size(), 7u);
  for (const Mix& mix : *mixes)
    EXPECT_TRUE(mix.machines[2] == 0 || mix.machines[0] + mix.machines[1] == 0);
  for (Offer& each : market.offers) each.most = 64;
  market.offers.push_back(offer("west", false, 3, 64));
  EXPECT_EQ(find_mixes(market).error().message,
            "over 4000 mixes of machines; give offers a smaller 'most', or leave some out");
}

TEST(Mixes, OnDemandCostsStartAndWork) {
  Market market;
  market.offers = {offer("west", false, 36, 4)};
  const MixJob job{.steps = 1800, .deadline = Seconds(950), .save = Seconds(5)};
  // Two machines: 100 s to start, 900 s of work. Losses have only the background rate and never
  // coincide. Saving every sqrt(2 * 5 / 1e-6) = 3162 s adds 5 s each time: 1.42 s.
  const auto priced = price(market, {{2}, 0}, job);
  ASSERT_TRUE(priced.has_value());
  EXPECT_NEAR(priced->save_every.value, std::sqrt(1e7), 0.1);
  EXPECT_NEAR(priced->time.value, 100 + 900 * (1 + 5 / std::sqrt(1e7)), 1e-6);
  EXPECT_NEAR(priced->cost, 2 * 0.01 * priced->time.value, 1e-9);
  EXPECT_EQ(priced->late, 1);
  const MixJob longer{.steps = 1800, .deadline = Seconds(1100), .save = Seconds(5)};
  EXPECT_EQ(price(market, {{2}, 0}, longer)->late, 0);
}

TEST(Mixes, LossesTakeTimeByTheirRate) {
  Market market;
  market.offers = {offer("west", true, 1, 4)};
  market.offers[0].losses_per_hour = 1;
  const MixJob job{.steps = 36'000, .save = Seconds(1e-6), .draws = 4000};
  // With constant saving each loss of the machine costs a cold start of 100 s, lost again with only
  // 2.7 %. A life trains for 3600 s less its start of 100 s: of a renewal of exponential lives,
  // E[max(L - 100, 0)] = 3600 e^(-1/36) = 3501.4 s of 3600. So 36,000 s of work take about 36,000 *
  // 3600 / 3501.4 = 37,014 s, and the first start.
  const auto one = price(market, {{1}, 0}, job);
  EXPECT_NEAR(one->time.value, 37'014, 150);
  // Without losses: the work and one start.
  market.offers[0].losses_per_hour = 0;
  EXPECT_NEAR(price(market, {{1}, 0}, job)->time.value, 36'100, 1);
}

TEST(Mixes, ALimitIsALoss) {
  Market market;
  market.offers = {offer("west", true, 1, 4)};
  market.offers[0].losses_per_hour = 0;
  market.offers[0].limit = Seconds(1000);
  // Each machine trains for 900 of its 1000 s. Saving is free, every sqrt(2e-6 / 1e-6) = 1.41 s;
  // half of that is recomputed: 1798.7 s of work end at 100 + 900 + 100 + 898.7.
  const MixJob job{.steps = 1798, .save = Seconds(1e-6), .draws = 1};
  EXPECT_NEAR(price(market, {{1}, 0}, job)->time.value, 1998.71, 0.01);
}

PricedMix result(double time, double cost, double late) {
  return {.time = Seconds(time), .cost = cost, .late = late};
}

TEST(Mixes, ParetoDropsWhatIsBeatenInAll) {
  const auto pareto = find_pareto({result(10, 5, 0), result(5, 9, 0), result(11, 6, 0),
                                   result(12, 4, 0.5), result(10, 5, 0.1)});
  ASSERT_EQ(pareto.size(), 3u);
  EXPECT_EQ(pareto[0].cost, 4);
  EXPECT_EQ(pareto[1].cost, 5);
  EXPECT_EQ(pareto[2].cost, 9);
  EXPECT_EQ(*choose_mix(pareto, {}), 0u);
  EXPECT_EQ(*choose_mix(pareto, {.deadline = Seconds(11)}), 1u);
  EXPECT_EQ(*choose_mix(pareto, {.budget = 9.5}), 2u);
  EXPECT_EQ(choose_mix(pareto, {.deadline = Seconds(11), .budget = 4.5}), std::nullopt);
}

}  // namespace
}  // namespace motley::elastic
