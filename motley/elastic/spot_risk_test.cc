#include "motley/elastic/spot_risk.h"

#include <gtest/gtest.h>

#include <cmath>

namespace motley::elastic {
namespace {

TEST(SpotRisk, ALifeIsTheQuantileOfItsDraw) {
  // 1e-3 per second in the first 100 s, then 2e-3: exp(-0.1 - 2e-3 (t - 100)) are still there.
  const SpotRisk risk{{{Seconds(0), Seconds(100)}, {1e-3, 2e-3}}, {0.5, 2}, Seconds(1000)};
  EXPECT_NEAR(risk.life(1, 1 - std::exp(-0.05)).value, 50, 1e-9);
  EXPECT_NEAR(risk.life(1, 1 - std::exp(-0.3)).value, 200, 1e-9);
  EXPECT_NEAR(risk.life(2, 1 - std::exp(-0.6)).value, 200, 1e-9);
  EXPECT_EQ(risk.life(1, 0.9999), Seconds(1000));
  EXPECT_EQ(risk.factor_at(0.49), 0.5);
  EXPECT_EQ(risk.factor_at(0.999), 2);
}

TEST(SpotRisk, IsThatOfTheOffer) {
  const LifetimeForecast forecast = Lifetimes().forecast(Seconds(0));
  Offer offer{.kind = "v100", .zone = "z", .region = "z", .is_spot = true};
  offer.losses_per_hour = 3.6;
  EXPECT_NEAR(risk_of(offer, forecast).life(1, 1 - std::exp(-1)).value, 1000, 1e-9);
  offer.losses_per_hour.reset();
  offer.limit = Seconds(500);
  EXPECT_EQ(risk_of(offer, forecast).life(1, 1 - 1e-9), Seconds(500));
  offer.is_spot = false;
  EXPECT_TRUE(std::isinf(risk_of(offer, forecast).life(1, 1 - 1e-9).value));
}

}  // namespace
}  // namespace motley::elastic
