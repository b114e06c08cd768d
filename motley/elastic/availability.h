#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::elastic {

struct AvailabilityTrace {
  Seconds from;                                            ///< >= 0
  Seconds until{std::numeric_limits<double>::infinity()};  ///< departure, if any; >= from
  bool operator==(const AvailabilityTrace&) const = default;
};

/// A span without arrivals or departures. `present` are indices into the presences, ascending.
struct AvailabilitySpan {
  Seconds from;
  Seconds until;  ///< infinity in the last one
  std::vector<std::size_t> present;
  bool operator==(const AvailabilitySpan&) const = default;
};

/// Returns the spans from time 0 on, without gaps or empty spans. O(n^2) for n presences.
/// Usage error (elastic.availability): a presence starts before 0 or ends before it starts.
Result<std::vector<AvailabilitySpan>> spans_of(const std::vector<AvailabilityTrace>& presences);

/// Returns the time until `steps` steps are done at `speed(present)` steps per second (`present`:
/// ascending indices into `presences`). Speed is constant within a span; a step in flight at a
/// departure counts for the part done. Infinity if they are never done. Errors as `spans_of`.
///
/// Example: two workers of 5 steps/s, one leaves after 10 s; 200 steps: 100 in the first 10 s, the
/// rest at 5 steps/s in 20 s: 30 s.
Result<Seconds> replay(const std::vector<AvailabilityTrace>& presences, double steps,
                       const std::function<double(const std::vector<std::size_t>&)>& speed);

}  // namespace motley::elastic
