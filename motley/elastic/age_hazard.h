#pragma once

#include <string_view>
#include <vector>

#include "motley/base/units.h"

namespace motley::elastic {

/// Revocations per second of the rented machines still present, by age; constant between ages.
struct AgeHazard {
  std::vector<Seconds> ages;       ///< where each piece begins: ascending, the first is 0
  std::vector<double> per_second;  ///< of each piece, >= 0; the last one has no end

  /// Integrates over these ages; 0 <= from <= to. O(pieces).
  double between(Seconds from, Seconds to) const;
  double at(Seconds age) const;
};

/// Returns the seconds that a machine spends within each piece while it ages from `from` to `to`.
std::vector<double> spent_in(const std::vector<Seconds>& ages, Seconds from, Seconds to);

std::size_t piece_of(const std::vector<Seconds>& ages, Seconds age);

struct HazardPrior {
  AgeHazard hazard;
  /// Losses behind each piece: the weight of the prior.
  std::vector<double> losses;
};

/// Returns the prior from 396 spot machines with a K80, P100 or V100 within their 24 h (Li et al.,
/// ICDCS 2020, figures of lifetimes): losses over hours at risk in ten pieces of age, with 50 h of
/// the pooled hazard added to each kind. Any other kind: pooled. Losses count half, since one cloud
/// in one year differs from another.
HazardPrior usual_hazard(std::string_view kind);

/// Age at which such machines are revoked in any case: 24 h (Google's preemptible ones until 2021).
inline constexpr Seconds kUsualLimit{24 * 3600.0};

}  // namespace motley::elastic
