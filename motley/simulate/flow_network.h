#pragma once

#include <cstdint>
#include <vector>

#include "motley/cost/transfer.h"
#include "motley/trace/trace.h"

namespace motley::simulate {

/// Links shared by flows with max-min fairness: no flow's rate can grow without shrinking that of
/// one that is not faster (progressive filling; Bertsekas and Gallager, Data Networks, 6.5.2).
/// Rates change only when a flow starts or ends. Deterministic: ties break by order of start.
///
/// Example: one link of 10 B/s, flows of 20 and 40 bytes from time 0: 5 B/s each until 4 s, then
/// the second has its last 20 bytes at 10 B/s and ends at 6 s.
class FlowNetwork {
 public:
  static constexpr trace::Nanoseconds kNever = INT64_MAX;

  /// Capacity of each link in bytes/s, all > 0.
  explicit FlowNetwork(std::vector<double> capacities);

  /// A flow begins at `now`, which is not before any earlier call's time nor after next_end().
  /// Returns its number, which is free again once the flow has ended. Flows are independent of
  /// those they share no link with, also in cost.
  std::int32_t start(trace::Nanoseconds now, const cost::Flow& flow);
  /// When the first of the flows under way ends, rounded up to a nanosecond; kNever if there is
  /// none.
  trace::Nanoseconds next_end() const;
  /// Ends the flows that are over at next_end() and appends their numbers, in order of start.
  void end_next(std::vector<std::int32_t>& ended);
};

}  // namespace motley::simulate
