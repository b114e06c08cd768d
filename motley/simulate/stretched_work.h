#pragma once

#include <vector>

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// Returns when `work` nanoseconds at factor 1, begun at `now`, end, to the nearest nanosecond.
///
/// Example: factor 2 from 30 to 50, work of 45 from 0: 30 by 30, 10 more by 50, 5 more by 55.
Nanoseconds end_when_stretched(const std::vector<Stretch>& pieces, Nanoseconds now, double work);

/// Returns the work between two times, in nanoseconds at factor 1.
double work_between(const std::vector<Stretch>& pieces, Nanoseconds from, Nanoseconds until);

}  // namespace motley::simulate
