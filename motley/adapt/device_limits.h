#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/learned_curves.h"
#include "motley/policy/action.h"
#include "motley/policy/observation.h"

namespace motley::adapt {

/// Samples that nobody limits.
inline constexpr std::int64_t kNoMost = std::int64_t{1} << 40;

/// What a device may be given, and what is believed of it.
struct DeviceLimits {
  std::string device;
  std::int64_t least = 1;       ///< samples; 0: it may idle
  std::int64_t most = kNoMost;  ///< samples that its memory holds
  std::optional<CurvePrior> prior;
};

/// Equal numbers of samples, the first devices one more, within all limits. Empty where these do
/// not allow the batch.
std::vector<std::int64_t> even_samples(const std::vector<DeviceLimits>& devices,
                                       std::int64_t batch);

/// The same in the ratio of `weights` (positive), rounded down and filled up from the largest
/// remainder.
std::vector<std::int64_t> weighted_samples(const std::vector<DeviceLimits>& devices,
                                           const std::vector<double>& weights, std::int64_t batch);

/// Without those that have none.
std::vector<policy::Share> make_shares(const std::vector<DeviceLimits>& devices,
                                       const std::vector<std::int64_t>& samples);

/// Of each of the devices in a step; 0: it took no part.
std::vector<std::int64_t> samples_in(const policy::StepSeen& seen,
                                     const std::vector<DeviceLimits>& devices);

/// An action that has not begun. Programs are prepared while training goes on, so a split that was
/// asked for begins a few steps later; until it does, nothing else is asked for.
class AskedSplit {
 public:
  void ask(std::vector<policy::Share> shares, std::int64_t step);
  /// Is one still to begin? After 12 steps it is taken to have been refused.
  bool waits(const policy::StepSeen& seen);
  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);

 private:
  std::vector<policy::Share> shares_;  // none: nothing is asked for
  std::int64_t step_ = 0;
};

}  // namespace motley::adapt
