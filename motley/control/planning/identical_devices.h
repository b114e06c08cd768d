#pragma once

#include <map>
#include <string>
#include <vector>

#include "motley/control/outside.h"
#include "motley/control/planning/inputs.h"

namespace motley::control {

/// What a device took: by operator a value for each round; of a device whose steps are measured
/// whole "step" alone.
struct EqualTimes {
  DeviceId device;
  std::map<std::string, std::vector<double>> seconds;
};

/// A device among those that its key says are its like.
struct Compared {
  DeviceId device;
  double ratio = 1;  ///< of its times to those of its like
  double limit = 1;  ///< above which it counts as slower
  bool is_slower() const { return ratio > limit; }
};

/// Each device against the median of the others, the median over the operators. It is slower where
/// that is above 1 by more than a tenth and more than three standard deviations of its rounds, as
/// their median absolute deviation gives them.
///
/// Example: two devices, of which one takes 2 ms where the other takes 1: ratios 2 and 0.5.
std::vector<Compared> compare_times(const std::vector<EqualTimes>& equals);

/// Devices whose times a profile has under one key, of those that a worker can be; two or more.
std::vector<std::vector<DeviceId>> find_equals(const Inputs& inputs, const std::string& torch);

/// Times all devices of each such key, those of different machines at the same time, and keeps
/// nothing. Operators at one device's part of the batch, or whole steps where halts count; three
/// rounds at least.
Result<std::vector<Compared>> compare_equals(const Inputs& inputs, int rounds,
                                             const Outside& outside);

/// The same inputs with the slower devices last: what is measured of a key is then measured on one
/// that is not slower than its like.
Inputs with_slower_last(Inputs inputs, const std::vector<Compared>& compared);

}  // namespace motley::control
