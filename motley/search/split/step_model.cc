#include "motley/search/split/step_model.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "motley/base/check.h"

namespace motley::search {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

/// Largest x with curve.at(x) <= seconds.
double inverse_at(const Curve& curve, double seconds) {
  const auto& points = curve.points;
  const auto above = std::find_if(points.begin(), points.end(),
                                  [&](const auto& point) { return point.second > seconds; });
  if (above == points.begin()) return -kForever;
  if (above == points.end() && points.size() == 1) return kForever;
  const auto right = above == points.end() ? points.end() - 1 : above;
  const auto [x0, y0] = *(right - 1);
  const auto [x1, y1] = *right;
  if (y1 <= y0) return kForever;
  return x0 + (x1 - x0) * ((seconds - y0) / (y1 - y0));
}

/// A device's curves and samples.
using Duty = std::pair<const StepCurves*, std::int64_t>;

/// Of devices that are alike and have as many samples one.
std::vector<Duty> distinct_duties(const SplitEvaluator& evaluator, const BatchSplit& split) {
  std::vector<Duty> duties;
  for (std::size_t i = 0; i < split.devices.size(); ++i) {
    const Duty duty{&evaluator.curves(split.devices[i], SplitEvaluator::Setting::kShared),
                    split.samples[i]};
    if (duties.empty() || duties.back() != duty) duties.push_back(duty);
  }
  std::sort(duties.begin(), duties.end());
  duties.erase(std::unique(duties.begin(), duties.end()), duties.end());
  return duties;
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

double model_step(const SplitEvaluator& evaluator, const BatchSplit& split) {
  MOTLEY_CHECK(!split.devices.empty() && split.devices.size() == split.samples.size());
  if (split.devices.size() == 1) {
    const StepCurves& curves = evaluator.curves(split.devices[0], SplitEvaluator::Setting::kAlone);
    return step_seconds(curves, {}, static_cast<double>(split.samples[0]));
  }
  const GroupExchanges times = evaluator.group_times(split.devices);
  const std::vector<Duty> duties = distinct_duties(evaluator, split);
  std::vector<double> slowest(times.exchange.size(), 0.0);
  for (const Duty& duty : duties) {
    const auto tails = update_tails(*duty.first);
    MOTLEY_CHECK(tails.size() == slowest.size());
    for (std::size_t k = 0; k < tails.size(); ++k) slowest[k] = std::max(slowest[k], tails[k]);
  }
  const std::vector<double> tails = exchange_tails(times.exchange, slowest);
  double seconds = 0.0;
  for (const auto& [curves, samples] : duties)
    seconds = std::max(seconds, step_seconds(*curves, tails, static_cast<double>(samples)));
  return times.blocking + seconds;
}

}  // namespace motley::search
