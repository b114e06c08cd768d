#pragma once

#include <algorithm>
#include <limits>

namespace motley::search {

/// The weighted mean over devices of the seconds that one operator takes, as a bound: whatever the
/// parts, a device takes at least its launch and at least its part of the whole time. The launches
/// pay for a part of launch / whole each; the rest goes to where it weighs least.
class MeanTime {
 public:
  /// So many devices of one kind, of this weight together. Seconds of all of the operator, and of
  /// none of it.
  void add(int count, double weight, double whole, double launch) {
    launch = std::min(launch, whole);
    whole_ += weight * whole;
    launches_ += weight * launch;
    paid_ += whole > 0 ? count * launch / whole : count;
    least_ = std::min(least_, weight / count * whole);
  }
  /// Where each device runs all of it.
  double whole() const { return whole_; }
  /// Where it is split.
  double split() const { return launches_ + least_ * std::max(0.0, 1 - paid_); }

 private:
  double whole_ = 0, launches_ = 0, paid_ = 0;
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace motley::search
