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

}  // namespace motley::cost
