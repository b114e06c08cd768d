#include "motley/cost/step/closed_form.h"

#include <algorithm>
#include <limits>

#include "motley/base/check.h"

namespace motley::cost {
namespace {

constexpr double kAlways = std::numeric_limits<double>::infinity();

/// Returns the largest x with curve.at(x) <= seconds.
double inverse_at(const Curve& curve, double seconds) {
  const auto& points = curve.points;
  const auto above = std::find_if(points.begin(), points.end(),
                                  [&](const auto& point) { return point.second > seconds; });
  if (above == points.begin()) return -kAlways;
  if (above == points.end() && points.size() == 1) return kAlways;
  const auto right = above == points.end() ? points.end() - 1 : above;
  const auto [x0, y0] = *(right - 1);
  const auto [x1, y1] = *right;
  if (y1 <= y0) return kAlways;
  return x0 + (x1 - x0) * ((seconds - y0) / (y1 - y0));
}

}  // namespace

double total_update(const StepCurves& curves) {
  double total = 0.0;
  for (auto update = curves.update.rbegin(); update != curves.update.rend(); ++update) {
    total += *update;
  }
  return total;
}

std::vector<double> update_tails(const StepCurves& curves) {
  std::vector<double> tails(curves.update.size());
  double sum = 0.0;
  for (std::size_t k = tails.size(); k-- > 0;) {
    sum += curves.update[k];
    tails[k] = sum;
  }
  return tails;
}

std::vector<double> exchange_tails(const std::vector<double>& exchange,
                                   const std::vector<double>& slowest_update) {
  MOTLEY_CHECK(exchange.size() == slowest_update.size());
  std::vector<double> tails(exchange.size());
  double next = 0.0;
  for (std::size_t k = tails.size(); k-- > 0;) {
    next = exchange[k] + std::max(slowest_update[k], next);
    tails[k] = next;
  }
  return tails;
}

double step_seconds(const StepCurves& curves, const std::vector<double>& tails, double samples) {
  MOTLEY_CHECK(tails.size() == curves.ready.size());
  double seconds = curves.end.at(samples) + total_update(curves);
  for (std::size_t k = 0; k < tails.size(); ++k) {
    seconds = std::max(seconds, curves.ready[k].at(samples) + tails[k]);
  }
  return seconds;
}

double largest_samples(const StepCurves& curves, const std::vector<double>& tails, double seconds) {
  MOTLEY_CHECK(tails.size() == curves.ready.size());
  double samples = inverse_at(curves.end, seconds - total_update(curves));
  for (std::size_t k = 0; k < tails.size(); ++k) {
    samples = std::min(samples, inverse_at(curves.ready[k], seconds - tails[k]));
  }
  return samples;
}

}  // namespace motley::cost
