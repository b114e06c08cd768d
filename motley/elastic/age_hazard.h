#pragma once

#include <string_view>
#include <vector>

#include "motley/base/units.h"

namespace motley::elastic {

/// How likely a rented machine is taken back, by its age: so many losses per second of those that
/// are still there, constant between ages.
struct AgeHazard {
  std::vector<Seconds> ages;       ///< where each piece begins: ascending, the first is 0
  std::vector<double> per_second;  ///< of each piece, >= 0; the last one goes on for ever

  /// Integral over these ages; 0 <= from <= to. O(pieces).
  double between(Seconds from, Seconds to) const;
  double at(Seconds age) const;
};

/// Seconds spent within each piece by somebody who aged from `from` to `to`.
std::vector<double> spent_in(const std::vector<Seconds>& ages, Seconds from, Seconds to);

/// The piece that an age is in.
std::size_t piece_of(const std::vector<Seconds>& ages, Seconds age);

/// What is known of a kind before anything is seen of it.
struct HazardPrior {
  AgeHazard hazard;
  /// Losses that each piece rests on: how much it weighs against what is seen.
  std::vector<double> losses;
};

/// What 396 spot machines with a K80, P100 or V100 did within their 24 h (Li et al., ICDCS 2020,
/// figures of lifetimes): losses over hours at risk in ten pieces of age, where each kind has 50 h
/// of all kinds' hazard added. Any other kind: that of all three. The losses of all kinds count
/// half, as what one cloud did in one year is not what another does.
HazardPrior usual_hazard(std::string_view kind);

/// Where such machines are taken back in any case: 24 h (Google's preemptible ones until 2021).
inline constexpr Seconds kUsualLimit{24 * 3600.0};

}  // namespace motley::elastic
