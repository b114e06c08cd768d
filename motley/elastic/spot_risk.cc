#include "motley/elastic/spot_risk.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace motley::elastic {
namespace {

constexpr Seconds kNever{std::numeric_limits<double>::infinity()};
constexpr std::size_t kFactors = 32;

Seconds age_of(const AgeHazard& hazard, double wanted) {
  for (std::size_t i = 0; i < hazard.ages.size(); ++i) {
    const bool is_last = i + 1 == hazard.ages.size();
    const double piece = is_last
                             ? std::numeric_limits<double>::infinity()
                             : hazard.per_second[i] * (hazard.ages[i + 1] - hazard.ages[i]).value;
    if (wanted <= piece)
      return hazard.per_second[i] > 0 ? hazard.ages[i] + Seconds(wanted / hazard.per_second[i])
                                      : kNever;
    wanted -= piece;
  }
  return kNever;
}

}  // namespace

Seconds SpotRisk::life(double factor, double drawn) const {
  return std::min(age_of(hazard, -std::log1p(-drawn) / factor), limit);
}

SpotRisk risk_of(const Offer& offer, const LifetimeForecast& forecast) {
  if (!offer.is_spot) return {{{Seconds(0)}, {0}}, {1}, kNever};
  const Seconds limit = offer.limit.value_or(kNever);
  if (offer.losses_per_hour) return {{{Seconds(0)}, {*offer.losses_per_hour / 3600}}, {1}, limit};
  return {forecast.common(offer.kind), forecast.factors(offer.kind, offer.zone, kFactors), limit};
}

}  // namespace motley::elastic
