#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/run/job.h"

namespace motley::run {

/// A link that is slower than the real one. The model of a collective of n ranks is that of a ring:
///   all-reduce of b bytes                    latency + 2 (n-1)/n * b / rate
///   all-gather, reduce-scatter of parts of   latency + (n-1) m / rate
///     at most m bytes, which the slowest moves; grouped, all bytes but the least part's
///   all-to-all                               latency + the larger of what this member gives to
///                                            the others and gets from them / rate
///   send of b bytes                          latency + b / rate
/// with the least rate and the largest latency among the members, counted from the moment when the
/// last member joins in. What is under way at the same time does not share it.
struct EmulatedLink {
  double rate = 0;       ///< bytes per second; 0 = no limit
  double latency_s = 0;  ///< of one collective

  bool is_real() const { return rate == 0 && latency_s == 0; }
  std::int64_t all_reduce_ns(int ranks, std::int64_t bytes) const;
  /// Of a collective that moves `bytes` each way over the slowest member's link.
  std::int64_t exchange_ns(int ranks, double bytes) const;
  bool operator==(const EmulatedLink&) const = default;
};

/// The link among `members` (ranks) of a job's devices.
EmulatedLink group_link(const std::vector<WorkerDevice>& devices, const std::vector<int>& members);

}  // namespace motley::run
