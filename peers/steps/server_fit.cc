#include "peers/steps/server_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "motley/elastic/server_queue.h"

namespace motley::peers {
namespace {

constexpr double kRatioTolerance = 1e-6;

/// The least sum of (predicted / measured - 1)^2 at a ratio of service to step, with its step.
struct AtRatio {
  double loss = 0;
  double step = 0;
};

AtRatio at_ratio(double ratio, const std::vector<SpeedPoint>& curve) {
  double squares = 0, sum = 0;
  for (const SpeedPoint& point : curve) {
    const auto speed =
        elastic::estimate_cluster_speed({{point.workers, Seconds(1)}}, Seconds(ratio));
    const double relative = speed->steps_per_second / point.steps_per_second;
    sum += relative;
    squares += relative * relative;
  }
  // Speeds are relative / step: minimize sum (relative x - 1)^2 over x = 1 / step.
  return {static_cast<double>(curve.size()) - sum * sum / squares, squares / sum};
}

/// Searches by golden section: one minimum, as a larger ratio bends the curve more everywhere.
double best_ratio(const std::vector<SpeedPoint>& curve) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double low = kRatioTolerance, high = 1;
  while (high - low > kRatioTolerance) {
    const double left = high - golden * (high - low), right = low + golden * (high - low);
    if (at_ratio(left, curve).loss < at_ratio(right, curve).loss)
      high = right;
    else
      low = left;
  }
  return (low + high) / 2;
}

}  // namespace

Result<ServerFit> fit_server(const std::vector<SpeedPoint>& curve) {
  for (const SpeedPoint& point : curve)
    if (point.workers < 1 || !(point.steps_per_second > 0))
      return usage_error("cost.fit", fmt::format("{} workers at {} steps/s, wanted one or more and "
                                                 "more than 0",
                                                 point.workers, point.steps_per_second));
  const auto is_other = [&](const SpeedPoint& p) { return p.workers != curve[0].workers; };
  if (curve.size() < 2 || std::none_of(curve.begin(), curve.end(), is_other))
    return usage_error("cost.fit", "a curve of one number of workers, wanted two or more");
  const double ratio = best_ratio(curve);
  const double step = at_ratio(ratio, curve).step;
  return ServerFit{Seconds(ratio * step), Seconds(step)};
}

}  // namespace motley::peers
