#pragma once

#include <cstdint>
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

/// Of a step behind so many passes, each as long as `pass`: what its last micro-batch does, behind
/// the others. By the samples of one; straight between the step's own points. O(points).
///
///   pass 1 s + 1 s a sample, the step the same, ready at half of it, in three micro-batches
///   (2 passes before): of 4 samples each end is at 3 * 5 s, ready at 2 * 5 + 2.5 s
StepCurves behind_passes(StepCurves step, const Curve& pass, std::int64_t passes);

/// The same times for so many times the samples: curves by the samples of a micro-batch become
/// curves by those of the step.
StepCurves stretch_samples(StepCurves curves, std::int64_t times);

/// What a group of devices spends on communication in a step.
struct GroupExchanges {
  std::vector<double> exchange;  ///< seconds of exchange k
  double blocking = 0.0;  ///< seconds of exchanges that all devices wait for (batch norm, ...)
};

}  // namespace motley::cost
