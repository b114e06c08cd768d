#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "motley/adapt/learned_curves.h"
#include "motley/policy/action.h"
#include "motley/policy/observation.h"

namespace motley::adapt {

inline constexpr std::int64_t kNoMost = std::int64_t{1} << 40;

struct DeviceLimits {
  std::string device;
  std::int64_t least = 1;       ///< samples; 0: it may idle
  std::int64_t most = kNoMost;  ///< samples that fit in its memory
  std::optional<CurvePrior> prior;
};

/// Splits evenly within the limits, the first devices get one more. Empty: the batch does not fit.
std::vector<std::int64_t> even_samples(const std::vector<DeviceLimits>& devices,
                                       std::int64_t batch);

/// Splits in the ratio of `weights` (positive), rounded down and filled up by largest remainder.
std::vector<std::int64_t> weighted_samples(const std::vector<DeviceLimits>& devices,
                                           const std::vector<double>& weights, std::int64_t batch);

/// Leaves out devices without samples.
std::vector<policy::Share> make_shares(const std::vector<DeviceLimits>& devices,
                                       const std::vector<std::int64_t>& samples);

/// Returns samples by device; 0: it took no part.
std::vector<std::int64_t> samples_in(const policy::StepSeen& seen,
                                     const std::vector<DeviceLimits>& devices);

/// A requested split that has not begun. Programs are prepared while training continues, so it
/// begins a few steps later; until then nothing else is requested.
class AskedSplit {
 public:
  void ask(std::vector<policy::Share> shares, std::int64_t step);
  /// Returns whether a request is still to begin. After 12 steps it counts as refused.
  bool waits(const policy::StepSeen& seen);
  Json state() const;
  Result<void> restore(const Json& json, const std::string& where);

 private:
  std::vector<policy::Share> shares_;  // empty: no request
  std::int64_t step_ = 0;
};

}  // namespace motley::adapt
