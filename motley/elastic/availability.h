#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::elastic {

/// When a worker is there.
struct AvailabilityTrace {
  Seconds from;                                            ///< >= 0
  Seconds until{std::numeric_limits<double>::infinity()};  ///< of a worker that leaves; >= from
  bool operator==(const AvailabilityTrace&) const = default;
};

/// A span of time in which nobody arrives or leaves, and who is there: indices into the presences,
/// ascending.
struct AvailabilitySpan {
  Seconds from;
  Seconds until;  ///< infinity in the last one
  std::vector<std::size_t> present;
  bool operator==(const AvailabilitySpan&) const = default;
};

/// The spans from time 0 on, without gaps and without empty ones.
/// Usage error (elastic.availability) for a presence that starts before 0 or ends before it starts.
/// O(n^2) for n presences.
Result<std::vector<AvailabilitySpan>> spans_of(const std::vector<AvailabilityTrace>& presences);

/// Time until `steps` steps are done, when the cluster does `speed(present)` steps per second as
/// long as `present` (indices into `presences`, ascending) are there: speed is constant within a
/// span, and a step that is under way when somebody leaves counts for the part that is done.
/// Infinity if they are never done. Errors as `spans_of`.
///
/// Example: two workers of 5 steps/s, one leaves after 10 s; 200 steps: 100 in the first 10 s, the
/// rest at 5 steps/s in 20 s: 30 s.
Result<Seconds> replay(const std::vector<AvailabilityTrace>& presences, double steps,
                       const std::function<double(const std::vector<std::size_t>&)>& speed);

}  // namespace motley::elastic
