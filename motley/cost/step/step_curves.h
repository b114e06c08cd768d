#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace motley::cost {

/// A nondecreasing piecewise-linear function of the local batch, by points (samples, seconds) with
/// strictly increasing samples. Constant before the first; the last slope continues.
struct Curve {
  std::vector<std::pair<double, double>> points;
  bool operator==(const Curve&) const = default;
  double at(double samples) const;
};

/// Times of one step on one device as functions of its samples, computing undisturbed at its own
/// speed, from the start of the step:
///   ready[k]   exchange k (in order of exchange) may start
///   end        forward, backward and packing are done
///   update[k]  seconds of the optimizer update after exchange k (independent of samples)
/// Exchanges in the middle of forward and backward, which delay all devices, are not included; see
/// GroupExchanges.
struct StepCurves {
  std::vector<Curve> ready;
  Curve end;
  std::vector<double> update;
  bool operator==(const StepCurves&) const = default;
};

/// Returns the curves of a step's last micro-batch after `passes` earlier ones, each as long as
/// `pass`. By the samples of one micro-batch; linear between the step's own points. O(points).
///
///   pass 1 s + 1 s a sample, the step the same, ready at half of it, in three micro-batches
///   (2 passes before): of 4 samples each end is at 3 * 5 s, ready at 2 * 5 + 2.5 s
StepCurves behind_passes(StepCurves step, const Curve& pass, std::int64_t passes);

/// Stretches curves over the samples of a micro-batch to the samples of a step of `times` of them.
StepCurves stretch_samples(StepCurves curves, std::int64_t times);

/// Communication of a group in a step.
struct GroupExchanges {
  std::vector<double> exchange;  ///< seconds of exchange k
  double blocking = 0.0;  ///< seconds of exchanges that all devices wait for (batch norm, ...)
};

}  // namespace motley::cost
