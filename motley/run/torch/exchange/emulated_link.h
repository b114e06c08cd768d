#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "motley/run/job.h"

namespace motley::run {

/// A link slower than the real one. A collective of n ranks is modelled as a ring:
///   all-reduce of b bytes                    latency + 2 (n-1)/n * b / rate
///   all-gather, reduce-scatter of parts of   latency + (n-1) m / rate
///     at most m bytes (the slowest member's);
///     grouped: all bytes but the smallest part's
///   all-to-all                               latency + max(bytes that this member sends to others,
///                                            bytes that it receives from them) / rate
///   send of b bytes                          latency + b / rate
/// Rate is the smallest and latency the largest among the members; time counts from the moment when
/// the last member joins. Exchanges in flight at the same time do not share the link.
struct EmulatedLink {
  double rate = 0;       ///< bytes per second; 0: no limit
  double latency_s = 0;  ///< per collective

  bool is_real() const { return rate == 0 && latency_s == 0; }
  std::int64_t all_reduce_ns(int ranks, std::int64_t bytes) const;
  /// Returns the time of a collective that moves `bytes` each way over the slowest member's link.
  std::int64_t exchange_ns(int ranks, double bytes) const;
  bool operator==(const EmulatedLink&) const = default;
};

/// Returns the link among `members` (ranks) of a job's devices.
EmulatedLink group_link(const std::vector<WorkerDevice>& devices, const std::vector<int>& members);

}  // namespace motley::run
