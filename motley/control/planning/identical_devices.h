#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/control/outside.h"
#include "motley/control/planning/inputs.h"

namespace motley::control {

/// A device's times per round, by operator; for measured whole steps only "step".
struct EqualTimes {
  DeviceId device;
  std::map<std::string, std::vector<double>> seconds;
};

struct Compared {
  DeviceId device;
  double ratio = 1;  ///< of its times to theirs
  double limit = 1;  ///< above it, the device counts as slower
  bool is_slower() const { return ratio > limit; }
};

/// Compares each device with the median of the others; its ratio is the median over the operators.
/// A device is slower if its ratio exceeds 1 by more than a tenth, and by more than three standard
/// deviations of its rounds (from their median absolute deviation).
///
/// Example: one of two devices takes 2 ms, the other 1 ms: ratios 2 and 0.5.
std::vector<Compared> compare_times(const std::vector<EqualTimes>& equals);

/// Returns the groups of two or more devices with one profile key that workers can run on.
std::vector<std::vector<DeviceId>> find_equals(const Inputs& inputs, const std::string& torch);

/// Times all devices of each such key, different machines concurrently, in three rounds or more,
/// and stores nothing. Times operators at one device's share, or whole steps if halts slow them.
Result<std::vector<Compared>> compare_equals(const Inputs& inputs, int rounds,
                                             const Outside& outside);

/// Moves slower devices to the end, so that a key is measured on a device of typical speed.
Inputs with_slower_last(Inputs inputs, const std::vector<Compared>& compared);

}  // namespace motley::control
