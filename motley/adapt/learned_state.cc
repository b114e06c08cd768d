#include <algorithm>
#include <cmath>

#include "motley/adapt/learned_curves.h"
#include "motley/base/json_fields.h"

// The text form of what was learned about a device.

namespace motley::adapt {

Json LearnedCurves::state() const { return fields_to_json(*this); }

Result<void> LearnedCurves::restore(const Json& json, const std::string& where) {
  MOTLEY_RETURN_IF_ERROR(restore_fields(json, where, *this));
  for (Point& point : points_) point.weight = std::min(point.weight, 1e6);
  return {};
}

Result<void> LearnedCurves::Point::check(const std::string& where) const {
  if (samples > 0 && weight > 0) return {};
  return usage_error("policy.state", where + ": wanted samples and a weight above 0");
}

Result<void> LearnedCurves::check(const std::string& where) const {
  const auto fits = [](double log_seconds) { return std::abs(log_seconds) < 100; };
  const bool is_sound = fits(log_level_) && squares_ >= 0 && squares_ < 1e6 && degrees_ >= 0 &&
                        degrees_ < 1e6 && assumed_spread_ > 0 && assumed_spread_ < 100 &&
                        std::all_of(points_.begin(), points_.end(),
                                    [&](const Point& x) { return fits(x.log_end); }) &&
                        std::all_of(window_.begin(), window_.end(),
                                    [&](const Reading& x) { return fits(x.log_end); });
  if (is_sound && (window_.empty() || window_samples_ > 0)) return {};
  return usage_error("policy.state", where + ": wanted times that a device can take");
}

}  // namespace motley::adapt
