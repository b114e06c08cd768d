#pragma once

#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::peers {

/// A measured time of a collective over a number of bytes.
struct CollectivePoint {
  Bytes bytes;
  Seconds time;
};

/// Time of one collective among one number of ranks, over its bytes, from a measured table.
///
/// Between measured sizes: linear in log(time) over log(bytes), exact for a pure latency and for a
/// pure rate. Below the smallest: its time, an upper bound (there the latency is nearly all of it).
/// Beyond the largest: at the largest one's rate. Times are first made nondecreasing over the bytes
/// (pool adjacent violators: neighbours in the wrong order get their mean), as noise of small
/// messages must not make more bytes cheaper.
///
/// Example: 1 MB in 100 us and 4 MB in 200 us: 2 MB take sqrt(100 us 200 us) = 141 us, 0.5 MB take
/// 100 us, 8 MB take 400 us.
class CollectiveCurve {
 public:
  /// Points in any order. Usage error (cost.collective-curve) without points, for bytes or times
  /// that are not > 0, and for a size that comes twice. O(n log n).
  static Result<CollectiveCurve> build(std::vector<CollectivePoint> points);

  /// 0 for no bytes. O(log n).
  Seconds time(double bytes) const;

 private:
  std::vector<double> log_bytes_, log_seconds_;  // increasing, nondecreasing
};

/// By number of ranks.
using CollectiveCurves = std::map<int, CollectiveCurve>;

}  // namespace motley::peers
