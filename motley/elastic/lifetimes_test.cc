#include "motley/elastic/lifetimes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "motley/base/json.h"

namespace motley::elastic {
namespace {

constexpr double kHour = 3600;

Lifetimes eight_in_two_zones() {
  Lifetimes lifetimes;
  for (int i = 0; i < 8; ++i)
    lifetimes.begin("m" + std::to_string(i), "v100", i < 4 ? "west" : "east", Seconds(60.0 * i));
  return lifetimes;
}

TEST(Lifetimes, KnowNothingMoreThanTheUsualBeforeAnythingIsSeen) {
  // Kind (deviation 0.3), zone (gamma of shape 1) and launch (20) vary. With H the usual hazard of
  // four hours, on a grid ten times finer over kind and zone: 1 - E[(1 + k z H / 20)^-20].
  const double hazard = usual_hazard("k80").hazard.between(Seconds(0), Seconds(4 * kHour));
  double stays = 0, total = 0, mean_kind = 0, kinds = 0;
  for (double x = -3.2; x <= 3.2; x += 0.04) {
    mean_kind += std::exp(-x * x / 2 + 0.3 * x);
    kinds += std::exp(-x * x / 2);
  }
  mean_kind /= kinds;
  for (double x = -3.2; x <= 3.2; x += 0.04)
    for (double z = 0.005; z < 18; z += 0.01) {
      const double weight = std::exp(-x * x / 2 - z);
      const double m = std::exp(0.3 * x) / mean_kind * z;
      stays += weight * std::pow(1 + m * hazard / 20, -20);
      total += weight;
    }
  EXPECT_NEAR(Lifetimes().forecast(Seconds(0)).gone_within("k80", "west", Seconds(4 * kHour)),
              1 - stays / total, 2e-3);
}

TEST(Lifetimes, LossesCountWhereTheyHappen) {
  Lifetimes lifetimes = eight_in_two_zones();
  lifetimes.end_lost("m0", Seconds(kHour));
  lifetimes.end_lost("m1", Seconds(kHour));
  const LifetimeForecast forecast = lifetimes.forecast(Seconds(2 * kHour));
  const double west = forecast.gone_within("v100", "west", Seconds(4 * kHour));
  const double east = forecast.gone_within("v100", "east", Seconds(4 * kHour));
  const double south = forecast.gone_within("v100", "south", Seconds(4 * kHour));
  EXPECT_GT(west, 1.2 * south);
  EXPECT_LT(east, south);
  // A machine of the launch with losses is worse off than one of another launch of the same age.
  const RentedMachine same{"v100", "west", Seconds(0), {}, false};
  Lifetimes later = lifetimes;
  later.begin("n", "v100", "west", Seconds(-2 * kHour));
  const RentedMachine other{"v100", "west", Seconds(-2 * kHour), {}, false};
  const LifetimeForecast both = later.forecast(Seconds(2 * kHour));
  const double factor_same = both.hazard_of(same).per_second[0];
  EXPECT_GT(factor_same, both.hazard_of(other).per_second[0]);
}

TEST(Lifetimes, WhatLiesAheadIsNotSeen) {
  Lifetimes known = eight_in_two_zones(), all = eight_in_two_zones();
  all.end_lost("m5", Seconds(5 * kHour));
  all.begin("later", "v100", "west", Seconds(4 * kHour));
  EXPECT_EQ(known.forecast(Seconds(3 * kHour)).gone_within("v100", "east", Seconds(kHour)),
            all.forecast(Seconds(3 * kHour)).gone_within("v100", "east", Seconds(kHour)));
}

TEST(Lifetimes, TheLimitIsCertainAndNoLoss) {
  Lifetimes lifetimes = eight_in_two_zones();
  const RentedMachine first{"v100", "west", Seconds(0), {}, false};
  EXPECT_EQ(lifetimes.forecast(Seconds(21 * kHour)).gone_within(first, Seconds(3 * kHour)), 1);
  Lifetimes reached = lifetimes, given_back = lifetimes;
  reached.end_lost("m0", Seconds(23.95 * kHour));
  given_back.end_given_back("m0", Seconds(23.95 * kHour));
  const Seconds later(30 * kHour);
  EXPECT_EQ(reached.forecast(later).gone_within("v100", "west", Seconds(kHour)),
            given_back.forecast(later).gone_within("v100", "west", Seconds(kHour)));
}

TEST(Lifetimes, FactorsAreQuantilesOfMeanOne) {
  double sum = 0;
  const auto factors = Lifetimes().forecast(Seconds(0)).factors("k80", "west", 400);
  for (const double factor : factors) sum += factor;
  EXPECT_NEAR(sum / 400, 1, 0.02);
  // The zone's factor is exponential, the kind's spreads it a little: the median is near log 2.
  EXPECT_NEAR(factors[200], std::log(2.0), 0.06);
}

TEST(Lifetimes, SurviveTheirText) {
  Lifetimes lifetimes = eight_in_two_zones();
  lifetimes.end_lost("m1", Seconds(kHour));
  lifetimes.end_given_back("m2", Seconds(2 * kHour));
  const auto read = Lifetimes::from_json(lifetimes.to_json(), "x");
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->machines(), lifetimes.machines());
}

std::string fault(std::string_view text) {
  return Lifetimes::from_json(parse_json(text, "l.json").value(), "l.json").error().message;
}

TEST(Lifetimes, SayWhatIsWrongWithAText) {
  EXPECT_EQ(fault(R"({"schema": "motley.lifetimes/2", "machines": []})"),
            "l.json: schema 'motley.lifetimes/2', wanted 'motley.lifetimes/1'");
  EXPECT_EQ(fault(R"({"schema": "motley.lifetimes/1", "machines": [
      {"name": "a", "kind": "k80", "zone": "w", "start": 5, "end": 4, "lost": true}]})"),
            "l.json: machine 'a' ends before it starts");
}

}  // namespace
}  // namespace motley::elastic
