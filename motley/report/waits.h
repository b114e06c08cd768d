#pragma once

#include <cstdint>
#include <vector>

#include "motley/trace/trace.h"

namespace motley::report {

/// A stretch in which a device computes nothing because another is late.
struct Wait {
  int device = 0;
  int late = 0;  ///< for whom it waits
  std::int64_t step = 0;
  trace::Nanoseconds begin = 0, end = 0;
  bool operator==(const Wait&) const = default;
};

/// Who waits for whom, ordered by device and begin. Where a device computes nothing for a
/// thousandth of a step or more (less is its own) and has an exchange under way or before it, it
/// waits until the last member of that exchange has come; for that one. A measured exchange begins
/// with each member's own coming; a simulated one when all are there, the last of them being the
/// one that computed last. A trace does not say who sends what is received: `peers` does, by device
/// and instruction (-1: nobody). What a device waits for is the last receive that ends in the
/// pause, until the sender last computed before it. Without `peers` it is whoever computed last.
///
/// Example: a computes 0..40, b 0..60, both then sum, measured from 40 and from 60 to 65: a waits
/// 40..60 for b; 60..65 is the exchange's own.
using Peers = std::vector<std::vector<int>>;
std::vector<Wait> find_waits(const trace::Trace& trace, const Peers& peers = {});

/// Where the steps of a device went, as seen from its compute lane.
struct DeviceTimes {
  std::int64_t steps = 0;
  trace::Nanoseconds computing = 0;
  trace::Nanoseconds waiting = 0;                    ///< for others
  trace::Nanoseconds other = 0;                      ///< exchanges themselves, and pauses
  std::vector<trace::Nanoseconds> waiting_for = {};  ///< by device
  bool operator==(const DeviceTimes&) const = default;
};
/// By device; the three parts sum to its step marks.
std::vector<DeviceTimes> sum_times(const trace::Trace& trace, const std::vector<Wait>& waits);

}  // namespace motley::report
