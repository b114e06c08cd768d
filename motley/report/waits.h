#pragma once

#include <cstdint>
#include <vector>

#include "motley/trace/trace.h"

namespace motley::report {

/// A time in which a device computes nothing because another is late.
struct Wait {
  int device = 0;
  int late = 0;  ///< the device it waits for
  std::int64_t step = 0;
  trace::Nanoseconds begin = 0, end = 0;
  bool operator==(const Wait&) const = default;
};

/// Finds who waits for whom, ordered by device and begin. A pause is at least a thousandth of a
/// step without computing; shorter ones are the device's own. A device with an exchange in flight
/// in the pause, or before it, waits until the exchange's last member arrives. A measured exchange
/// begins for each member at its own arrival. A simulated one begins when all have arrived; the
/// last is the member that computed last. `peers` names the sender of each receive, by device and
/// instruction (-1: nobody): the device waits for the last receive that ends in the pause, until
/// its sender last computed before it. Without `peers` it waits for the device that computed last.
///
/// Example: a computes 0..40, b 0..60, then both sum, measured from 40 and from 60 to 65: a waits
/// 40..60 for b; 60..65 is the exchange's own.
using Peers = std::vector<std::vector<int>>;
std::vector<Wait> find_waits(const trace::Trace& trace, const Peers& peers = {});

/// How a device spent its steps, as seen from its compute lane.
struct DeviceTimes {
  std::int64_t steps = 0;
  trace::Nanoseconds computing = 0;
  trace::Nanoseconds waiting = 0;                    ///< for others
  trace::Nanoseconds other = 0;                      ///< exchanges themselves, and pauses
  std::vector<trace::Nanoseconds> waiting_for = {};  ///< by device
  bool operator==(const DeviceTimes&) const = default;
};
/// Sums by device; the three parts sum to its step marks.
std::vector<DeviceTimes> sum_times(const trace::Trace& trace, const std::vector<Wait>& waits);

}  // namespace motley::report
