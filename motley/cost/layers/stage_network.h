#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>

#include "motley/base/units.h"

namespace motley::cost {

/// Rate of messages by size, as other tools fit it to measurements: a quadratic in log2(size in
/// 10^6 bytes) that gives 10^9 bytes per second. Such fits hold only for large messages (below 0.1
/// MB they cross zero), so a message under 1 MB takes the time of one of 1 MB, an upper bound.
/// Beyond the parabola's summit the rate stays constant; it never exceeds `peak`.
struct RateCurve {
  std::array<double, 3> coefficients{};  ///< highest power first
  BytesPerSecond peak;
};
/// Returns the time of a message when `flows` equal ones share the curve's rate. 0 for no bytes.
Seconds transfer_time(const RateCurve& curve, Bytes bytes, double flows);

/// Number of devices that send at once -> their total rate.
using RateCurves = std::map<int, RateCurve>;

/// The network between the devices of a plan.
struct StageNetwork {
  /// Between hosts, by (sending kind, receiving kind): each device sends to another host.
  std::map<std::pair<std::string, std::string>, RateCurves> between;
  /// Inside a host: each pair of devices exchanges, so there are half as many messages as devices.
  std::map<std::string, RateCurves> inside;
  std::map<std::string, int> devices_per_host;  ///< by kind; 1 if absent
};

}  // namespace motley::cost
