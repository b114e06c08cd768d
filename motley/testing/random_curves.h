#pragma once

#include <cstddef>
#include <cstdint>

#include "motley/base/random.h"
#include "motley/cost/step/step_curves.h"

namespace motley::cost {

/// Draws a nondecreasing curve with plateaus and steep parts, convex or not.
inline Curve random_curve(SplitMix64& random, std::int64_t batch, double scale) {
  Curve curve;
  double seconds = scale * random.uniform();
  for (std::int64_t x = 1; x <= batch + 1; x += 1 + static_cast<std::int64_t>(random.below(3))) {
    curve.points.emplace_back(static_cast<double>(x), seconds);
    if (random.below(4) != 0) seconds += scale * random.uniform();
  }
  return curve;
}

inline Curve add_curves(const Curve& a, const Curve& b, std::int64_t batch) {
  Curve sum;
  for (std::int64_t x = 1; x <= batch + 1; ++x) {
    const auto at = static_cast<double>(x);
    sum.points.emplace_back(at, a.at(at) + b.at(at));
  }
  return sum;
}

struct CurveShape {
  std::int64_t batch = 12;  ///< last point of the curves
  std::size_t exchanges = 0;
  double slowness = 1;
  bool ordered_updates = true;  ///< one device is slower in all updates
};

inline StepCurves random_step_curves(SplitMix64& random, const CurveShape& shape) {
  StepCurves curves;
  Curve before = random_curve(random, shape.batch, shape.slowness);
  for (std::size_t k = 0; k < shape.exchanges; ++k) {
    curves.ready.push_back(before);
    before = add_curves(before, random_curve(random, shape.batch, shape.slowness / 2), shape.batch);
    curves.update.push_back((shape.ordered_updates ? shape.slowness : 3 * random.uniform()) *
                            static_cast<double>(k + 1));
  }
  curves.end = before;
  return curves;
}

}  // namespace motley::cost
