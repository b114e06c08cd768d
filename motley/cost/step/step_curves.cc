#include "motley/cost/step/step_curves.h"

#include <algorithm>

#include "motley/base/check.h"

namespace motley::cost {

double Curve::at(double samples) const {
  MOTLEY_CHECK(!points.empty());
  if (samples <= points.front().first || points.size() == 1) return points.front().second;
  const auto right = std::find_if(points.begin() + 1, points.end() - 1,
                                  [&](const auto& point) { return samples < point.first; });
  const auto [x0, y0] = *(right - 1);
  const auto [x1, y1] = *right;
  return y0 + (y1 - y0) * ((samples - x0) / (x1 - x0));
}

namespace {

template <typename Change>
void change_points(StepCurves& curves, const Change& change) {
  for (Curve& ready : curves.ready)
    for (auto& [samples, seconds] : ready.points) change(samples, seconds);
  for (auto& [samples, seconds] : curves.end.points) change(samples, seconds);
}

}  // namespace

StepCurves behind_passes(StepCurves step, const Curve& pass, std::int64_t passes) {
  if (passes > 0)
    change_points(step, [&](double samples, double& seconds) {
      seconds += static_cast<double>(passes) * pass.at(samples);
    });
  return step;
}

StepCurves stretch_samples(StepCurves curves, std::int64_t times) {
  change_points(curves, [&](double& samples, double) { samples *= static_cast<double>(times); });
  return curves;
}

}  // namespace motley::cost
