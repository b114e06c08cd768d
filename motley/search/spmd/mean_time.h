#pragma once

#include <algorithm>
#include <limits>

namespace motley::search {

/// What a device takes for a part of an operator, at least: for the part p of it
/// max(least, fixed + p (whole - fixed)) seconds.
struct PartTime {
  double whole = 0;
  double fixed = 0;  ///< for operands and results of which each device has all
  double least = 0;  ///< for a part of nothing: a launch
};

/// The weighted mean over devices of the seconds that one operator takes, as a bound whatever the
/// parts. As much of it as devices do within their least time costs nothing more; the rest goes to
/// where it weighs least.
class MeanTime {
 public:
  /// So many devices of one kind, of this weight together.
  void add(int count, double weight, const PartTime& time) {
    const double least = std::min(std::max(time.least, time.fixed), time.whole);
    const double grows = time.whole - time.fixed;
    whole_ += weight * time.whole;
    least_ += weight * least;
    free_ += grows > 0 ? count * (least - time.fixed) / grows : count;
    next_ = std::min(next_, weight / count * grows);
  }
  /// Where each device runs all of it.
  double whole() const { return whole_; }
  /// Where it is split.
  double split() const { return least_ + next_ * std::max(0.0, 1 - free_); }

 private:
  double whole_ = 0, least_ = 0;
  double free_ = 0;  // parts
  double next_ = std::numeric_limits<double>::infinity();
};

}  // namespace motley::search
