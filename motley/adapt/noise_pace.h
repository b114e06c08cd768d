#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/adapt/noise_scale.h"
#include "motley/base/json_forward.h"
#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::adapt {

/// Decides in which steps the noise of gradients is measured: every k-th, by what measuring costs
/// and what it brings. All in steps of the batch in use, H of which are the memory in use
/// (noise_scale.h), T their seconds, c those that measuring adds, v the variance of the noise
/// scale's logarithm as one measured step has it:
///
///   measuring costs                              c / (T k)
///   2 H / k measured steps count, which leave the logarithm a variance of v k / (2 H); a scale
///   that is off by the factor e^x loses at most x^2 / 16 (batch_choice.h's optimum moves by half
///   of x, where the logarithm of progress has a curvature of 1/2 at most), so
///                                                v k / (32 H)
///   of which the sum is least at                 k = sqrt(32 H c / (T v))
///
/// to a power of two, and so that the shortest memory has the four steps that it needs, since a
/// change of the scale shows there first. Each step is measured until as many count as k keeps; so
/// also, for a while, after another plan or learning rate, and where the scale moves: when a
/// shorter memory comes into use, as longer ones contradict it. Where the scale has no upper bound
/// after 256 such steps, c / (T k) may be a twentieth from then on. Scales below one sample are as
/// one: no batch can follow them. What measuring adds shows between steps with and without it, at
/// first in every second step.
class NoisePace {
 public:
  /// As of the scale's options.
  NoisePace(double initial_batch, double shortest_memory)
      : initial_batch_(initial_batch), shortest_memory_(shortest_memory) {}

  /// A step was done; what was measured of it is said behind it.
  void see_step(Seconds took, std::int64_t batch);
  struct Passed {
    double samples = 0;  ///< of steps that were not measured since the last one that was
    Seconds time;        ///< of these and the last step
  };
  /// The last step was measured.
  Passed see_noise();
  /// Each step is measured, for a while.
  void begin_anew();
  /// What is best now. True: it is another than before.
  bool decide(const NoiseInterval& noise);
  std::int64_t every() const { return every_; }
  /// What measuring adds to a step, as a part of it; none: not known.
  std::optional<double> cost() const;

  Json state() const;
  /// Usage error `adapt.state`.
  Result<void> restore(const Json& state, const std::string& where);

 private:
  double find_best(const NoiseInterval& noise) const;
  double steps_in(double memory) const;

  double initial_batch_, shortest_memory_;
  std::int64_t every_ = 1;
  std::int64_t batch_ = 0;     // of the last step
  double took_ = 0;            // the same; 0: it was measured, or there is none
  double passed_samples_ = 0;  // of steps before it that were not measured
  double passed_s_ = 0;
  std::vector<double> plain_;                     // seconds of the last of them
  std::vector<std::pair<double, double>> costs_;  // steps without, and what one with took more
  std::int64_t measured_ = 0;                     // steps since it began anew
  double memory_ = 0;                             // in use when it was decided last
};

}  // namespace motley::adapt
