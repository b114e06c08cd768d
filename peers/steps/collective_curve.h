#pragma once

#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::peers {

/// The measured time of a collective at a number of bytes.
struct CollectivePoint {
  Bytes bytes;
  Seconds time;
};

/// A collective's time over its bytes for one number of ranks, from a measured table.
///
/// Between measured sizes: linear in log(time) over log(bytes), exact for pure latency and pure
/// rate. Below the smallest: its time, an upper bound (mostly latency). Beyond the largest: at its
/// rate. Times are first made nondecreasing (pool adjacent violators: neighbours in the wrong order
/// get their mean), so that noise of small messages does not make more bytes cheaper.
///
/// Example: 1 MB in 100 us and 4 MB in 200 us: 2 MB take sqrt(100 us 200 us) = 141 us, 0.5 MB take
/// 100 us, 8 MB take 400 us.
class CollectiveCurve {
 public:
  /// Builds it from points in any order. Usage error (cost.collective-curve): no points, bytes or
  /// times that are not > 0, a duplicate size. O(n log n).
  static Result<CollectiveCurve> build(std::vector<CollectivePoint> points);

  /// Returns the time; 0 for no bytes. O(log n).
  Seconds time(double bytes) const;

 private:
  std::vector<double> log_bytes_, log_seconds_;  // increasing, nondecreasing
};

/// By number of ranks.
using CollectiveCurves = std::map<int, CollectiveCurve>;

}  // namespace motley::peers
