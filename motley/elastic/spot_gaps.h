#pragma once

#include <optional>
#include <vector>

#include "motley/base/units.h"

namespace motley::elastic {

/// Learns how soon spot machines return to a zone, from the gaps without any.
class SpotGaps {
 public:
  /// Begins or ends a gap. Times do not decrease.
  void begin(Seconds now);
  void end(Seconds now);
  /// Returns gaps over the time in them, plus one of four hours as a prior. That is long on
  /// purpose: the mean rate of few gaps understates how long the next one may take.
  double returns_per_second(Seconds now) const;

  static void fields(auto& it, auto& field) { field("gaps", it.gaps_)("gap_since", it.since_); }

 private:
  std::vector<double> gaps_;  // seconds
  std::optional<Seconds> since_;
};

}  // namespace motley::elastic
