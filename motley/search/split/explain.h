#pragma once

#include <string>
#include <vector>

#include "motley/search/split/split_space.h"

namespace motley::search {

/// Explains a split in sentences: samples and speed of each device type, devices whose memory is
/// full, the cost of using each idle device, and the bottleneck.
///
///   a:0 gets 23 of 40 samples: it is 4.0x as fast as c:0
///   b:0 is full: 12 samples need 511 MiB of 512 MiB
///   c:0 stays idle: with it the step would take 12.0 ms longer
///   binding: compute on all devices, balanced to 0.8 %
std::vector<std::string> explain_split(const SplitSpace& space, const BatchSplit& split,
                                       const std::vector<DeviceId>& idle);

}  // namespace motley::search
