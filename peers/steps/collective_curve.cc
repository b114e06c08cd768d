#include "peers/steps/collective_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/base/statistics.h"

namespace motley::peers {
namespace {

Result<void> verify_points(const std::vector<CollectivePoint>& points) {
  const auto fault = [](const std::string& what) {
    return usage_error("cost.collective-curve", what);
  };
  if (points.empty()) return fault("a collective without measured sizes");
  for (std::size_t i = 0; i < points.size(); ++i) {
    const auto& [bytes, time] = points[i];
    if (bytes.value <= 0 || !(time.value > 0) || !std::isfinite(time.value))
      return fault(fmt::format("a collective of {} bytes in {} s, wanted more than 0 of both",
                               bytes.value, time.value));
    if (i > 0 && points[i - 1].bytes == bytes)
      return fault(fmt::format("a collective of {} bytes comes twice", bytes.value));
  }
  return {};
}

}  // namespace

Result<CollectiveCurve> CollectiveCurve::build(std::vector<CollectivePoint> points) {
  std::sort(points.begin(), points.end(),
            [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
  MOTLEY_RETURN_IF_ERROR(verify_points(points));
  CollectiveCurve curve;
  std::vector<double> seconds;
  for (const CollectivePoint& point : points) {
    curve.log_bytes_.push_back(std::log(static_cast<double>(point.bytes.value)));
    seconds.push_back(point.time.value);
  }
  make_nondecreasing(seconds);
  for (const double second : seconds) curve.log_seconds_.push_back(std::log(second));
  return curve;
}

Seconds CollectiveCurve::time(double bytes) const {
  if (!(bytes > 0)) return Seconds(0);
  const double x = std::log(bytes);
  if (x <= log_bytes_.front()) return Seconds(std::exp(log_seconds_.front()));
  if (x >= log_bytes_.back()) return Seconds(std::exp(log_seconds_.back() + x - log_bytes_.back()));
  const auto right = std::upper_bound(log_bytes_.begin(), log_bytes_.end(), x);
  const auto i = static_cast<std::size_t>(right - log_bytes_.begin());
  const double share = (x - log_bytes_[i - 1]) / (log_bytes_[i] - log_bytes_[i - 1]);
  return Seconds(std::exp(log_seconds_[i - 1] + share * (log_seconds_[i] - log_seconds_[i - 1])));
}

}  // namespace motley::peers
