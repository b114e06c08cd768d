#pragma once

#include <vector>

#include "motley/simulate/find_times.h"

namespace motley::simulate {

/// When `work` nanoseconds at factor 1 are done that go on from `now`, to the nearest nanosecond.
///
/// Example: factor 2 from 30 to 50, work of 45 from 0: 30 by 30, 10 more by 50, 5 more by 55.
Nanoseconds end_when_stretched(const std::vector<Stretch>& pieces, Nanoseconds now, double work);

/// Nanoseconds at factor 1 that are done between two times.
double work_between(const std::vector<Stretch>& pieces, Nanoseconds from, Nanoseconds until);

}  // namespace motley::simulate
