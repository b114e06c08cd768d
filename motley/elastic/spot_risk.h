#pragma once

#include <cstddef>
#include <vector>

#include "motley/elastic/age_hazard.h"
#include "motley/elastic/lifetimes.h"
#include "motley/elastic/market.h"

namespace motley::elastic {

/// How machines of an offer are revoked: losses by age, times a factor that all of a kind in a zone
/// share, one of `factors` (equally likely). On demand: never.
struct SpotRisk {
  AgeHazard hazard;
  std::vector<double> factors;
  Seconds limit;  ///< infinite: none

  /// `place`: in [0, 1).
  double factor_at(double place) const {
    return factors[static_cast<std::size_t>(place * static_cast<double>(factors.size()))];
  }
  /// Returns the time until revocation (infinite: never), the `drawn` quantile, in [0, 1).
  Seconds life(double factor, double drawn) const;
};

/// Returns the risk of the offer itself, or that of its kind and zone from lifetimes.
SpotRisk risk_of(const Offer& offer, const LifetimeForecast& forecast);

}  // namespace motley::elastic
