#include "motley/search/split/step_shape.h"

#include <algorithm>

#include "motley/base/check.h"

namespace motley::search {
namespace {

/// Returns the seconds of all compute instructions before each position, at one batch.
std::vector<double> sum_before(const StepShape& shape, const cost::InstructionTimes& times,
                               double batch, double speed) {
  std::vector<double> sums(times.size() + 1, 0.0);
  for (std::size_t i = 0; i < times.size(); ++i) {
    sums[i + 1] = sums[i] + (shape.computes[i] ? times.at(i, batch).value / speed : 0.0);
  }
  return sums;
}

}  // namespace

StepCurves build_curves(const StepShape& shape, const cost::InstructionTimes& times, double speed) {
  MOTLEY_CHECK(shape.computes.size() == times.size());
  StepCurves curves;
  for (const StepShape::Exchange& exchange : shape.exchanges) {
    if (!exchange.blocking) curves.ready.emplace_back();
  }
  std::vector<double> batches = times.batches();
  curves.update.assign(curves.ready.size(), 0.0);
  double before_updates = 0.0;  // tail instructions without waits
  for (const auto& [position, exchange] : shape.updates) {
    double seconds = times.at(position, batches.back()).value / speed;
    // If a device's pace depends on its step, the least update time counts: curves are bounds.
    for (const double batch : batches)
      seconds = std::min(seconds, times.at(position, batch).value / speed);
    (exchange < 0 ? before_updates : curves.update[static_cast<std::size_t>(exchange)]) += seconds;
  }
  batches.push_back(2 * batches.back());
  for (const double batch : batches) {
    const std::vector<double> sums = sum_before(shape, times, batch, speed);
    curves.end.points.emplace_back(batch, sums[shape.tail] + before_updates);
    std::size_t k = 0;
    for (const StepShape::Exchange& exchange : shape.exchanges) {
      if (!exchange.blocking) curves.ready[k++].points.emplace_back(batch, sums[exchange.after]);
    }
  }
  return curves;
}

std::vector<double> blocking_slack(const StepShape& shape, const cost::InstructionTimes& times,
                                   double speed) {
  const std::vector<double> sums = sum_before(shape, times, times.batches().back(), speed);
  std::vector<double> slack;
  for (const StepShape::Exchange& exchange : shape.exchanges) {
    if (exchange.blocking) slack.push_back(sums[exchange.waiter] - sums[exchange.after]);
  }
  return slack;
}

}  // namespace motley::search
