#pragma once

#include <cstddef>
#include <vector>

#include "motley/elastic/age_hazard.h"
#include "motley/elastic/lifetimes.h"
#include "motley/elastic/market.h"

namespace motley::elastic {

/// How machines of an offer are taken back: losses by age, times a factor that all of a kind in a
/// zone share, which is one of `factors` (equally likely). On demand: never.
struct SpotRisk {
  AgeHazard hazard;
  std::vector<double> factors;
  Seconds limit;  ///< infinite: none

  /// `place`: where in [0, 1) the factor is.
  double factor_at(double place) const {
    return factors[static_cast<std::size_t>(place * static_cast<double>(factors.size()))];
  }
  /// From when it is rented until it is taken back; infinite: never. `drawn` in [0, 1): the share
  /// of machines that are taken back earlier.
  Seconds life(double factor, double drawn) const;
};

/// As the offer says, or by what lifetimes say of its kind and zone.
SpotRisk risk_of(const Offer& offer, const LifetimeForecast& forecast);

}  // namespace motley::elastic
