#pragma once

#include <utility>
#include <vector>

namespace motley::cost {

/// A nondecreasing piecewise-linear function of the local batch: points (samples, seconds) with
/// samples strictly increasing. Below the first point it is constant; beyond the last it goes on
/// with the last segment's slope.
struct Curve {
  std::vector<std::pair<double, double>> points;
  bool operator==(const Curve&) const = default;
  double at(double samples) const;
};

/// Time of one step on one device as a function of its samples, computing undisturbed at its own
/// speed, from the start of the step:
///   ready[k]   exchange k (in order of exchange) may start
///   end        forward, backward and packing are done
///   update[k]  seconds of the optimizer update that follows exchange k (does not depend on
///              samples)
/// Seconds of exchanges in the middle of forward and backward that hold up everybody are not part
/// of these; see GroupExchanges.
struct StepCurves {
  std::vector<Curve> ready;
  Curve end;
  std::vector<double> update;
  bool operator==(const StepCurves&) const = default;
};

/// What a group of devices spends on communication in a step.
struct GroupExchanges {
  std::vector<double> exchange;  ///< seconds of exchange k
  double blocking = 0.0;  ///< seconds of exchanges that all devices wait for (batch norm, ...)
};

}  // namespace motley::cost
