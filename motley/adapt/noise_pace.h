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

/// Decides in which steps gradient noise is measured: every k-th, by cost and benefit. In steps of
/// the present batch: H is the present memory (noise_scale.h), T the time of a step, c the time
/// that measuring adds, v the variance of the noise scale's logarithm from one measured step.
///
///   measuring costs                              c / (T k)
///   2 H / k measured steps count, so the logarithm has a variance of v k / (2 H). A scale off by
///   the factor e^x loses at most x^2 / 16 (batch_choice.h's optimum moves by half of x, where the
///   logarithm of progress has a curvature of at most 1/2), so the loss is
///                                                v k / (32 H)
///   their sum is least at                        k = sqrt(32 H c / (T v))
///
/// k is rounded to a power of two and leaves the shortest memory the four steps it needs, since a
/// change of the scale shows there first. Each step is measured until as many count as k keeps. It
/// is so again, for a while, after another plan or learning rate, and when the scale moves: a
/// shorter memory comes into use because longer ones contradict it. Where the scale has no upper
/// bound after 256 such steps, c / (T k) may be a twentieth from then on. Scales below one sample
/// count as one: no batch can follow them. The cost of measuring is the difference between steps
/// with and without it, at first every second step.
class NoisePace {
 public:
  NoisePace(double initial_batch, double shortest_memory)
      : initial_batch_(initial_batch), shortest_memory_(shortest_memory) {}

  /// Records a finished step; its noise follows with see_noise.
  void see_step(Seconds took, std::int64_t batch);
  struct Passed {
    double samples = 0;  ///< of unmeasured steps since the last measured one
    Seconds time;        ///< of these and the last step
  };
  /// Records that the last step was measured.
  Passed see_noise();
  /// Measures each step for a while.
  void begin_anew();
  /// Decides anew. Returns whether `every` changed.
  bool decide(const NoiseInterval& noise);
  std::int64_t every() const { return every_; }
  /// Returns the cost of measuring relative to a step; none: unknown.
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
  double took_ = 0;            // of the last step; 0: measured, or none
  double passed_samples_ = 0;  // of unmeasured steps before it
  double passed_s_ = 0;
  std::vector<double> plain_;                     // seconds of the last unmeasured steps
  std::vector<std::pair<double, double>> costs_;  // steps without, and the excess of one with
  std::int64_t measured_ = 0;                     // since it began anew
  double memory_ = 0;                             // in use at the last decision
};

}  // namespace motley::adapt
