#pragma once

#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/links/collectives.h"

namespace motley::cost {

/// A collective measured alone. `bytes` is what each rank holds at the end (reduce-scatter: at the
/// beginning): the whole tensor, or for an all-to-all the rank's own part.
struct CollectiveSample {
  int ranks = 0;
  double bytes = 0;
  Seconds seconds;
};

/// latency + seconds_per_byte * bytes, both >= 0.
struct Affine {
  Seconds latency;
  double seconds_per_byte = 0;
  Seconds at(double bytes) const { return latency + Seconds(seconds_per_byte * bytes); }
  bool operator==(const Affine&) const = default;
};

/// Time over the size for one operation, route and number of ranks: continuous, of one or two
/// pieces.
/// - kFaster, the smaller of two: a library that switches to the faster protocol at a size (little
///   latency and half the bandwidth, or the other way round);
/// - kSlower, the larger of two: costs in parallel, such as a launch that takes longer than the
///   transfer of few bytes.
struct SizeCurve {
  enum class Shape { kOne, kFaster, kSlower };
  Shape shape = Shape::kOne;
  Affine small, large;  ///< equal for kOne; else `small` holds below the crossing
  const Affine& piece(double bytes) const;  ///< returns the piece at this size
  Seconds at(double bytes) const { return piece(bytes).at(bytes); }
};

/// Fits the curve of least mean squared relative error among one piece (fit_relative) and both
/// forms of two, each fitted on its side of 32 splits spread over the sizes. Two pieces need three
/// sizes each, a crossing that matches the shape, and an error lower by a tenth, so four points on
/// a line stay one. Ignores `ranks`. Usage error (cost.fit): fewer than two sizes, a time that is
/// not > 0. The outer pieces continue beyond the samples. O(32 samples).
Result<SizeCurve> fit_collective(const std::vector<CollectiveSample>& samples);

/// Cost of an operation among any number of ranks with equal ports at one switch.
struct TransportFit {
  Collective op;
  Algorithm algorithm;
  Transport transport;
  std::optional<BytesPerSecond> port;  ///< each way, of each rank; none: no limit was seen
  Affine among(int ranks) const;       ///< ranks > 1; O(ranks^2)
};

/// Fits launch, latency of a message, local seconds per byte and the port's rate, all >= 0, by
/// relative least squares over samples of several numbers of ranks:
///   time = launch + messages(n) latency + bytes local + crossing(n, bytes) / port
/// where messages and crossing are those of build_transfer for the algorithm. An all-reduce by
/// ring: launch + 2 (n-1) latency + B local + 2 (n-1)/n B / port.
///
/// Holds if all groups see the same fabric (one switch, one PCIe root), not if few ranks have
/// better links than many (NVLink pairs, cube meshes), where each number of ranks has its own
/// curve. Usage error (cost.fit) for fewer than two numbers of ranks (the terms cannot be
/// separated), fewer than two sizes, ranks < 2, or a time that is not > 0.
///
/// Example: the public tables of NCCL on eight A100 (NVLink 3, 300 GB/s each way), fitted on 2 and
/// 4 ranks: 297 GB/s, and 1.9 % mean error for 8.
Result<TransportFit> fit_transport(Collective op, Algorithm algorithm,
                                   const std::vector<CollectiveSample>& samples);

/// Compute measured `alone` and `together` with a communication that takes `overlap` on its own.
struct OverlapSample {
  Seconds alone, together, overlap;
};

/// Fits how much slower compute is while its device communicates, at 1/(1 + f) of its speed:
///   together = alone + f / (1 + f) * overlap;
/// with 0 <= f <= kMostInterference, by relative least squares. 0 = not at all; the maximum =
/// compute stops. Cores or multiprocessors and memory are shared; f is measured, not derived.
/// `overlap` excludes the slow-down of the communication itself by compute, so f includes it. Usage
/// error (cost.fit): no overlap, a time that is not > 0.
///
/// Example: 10 ms alone, 12 ms with 8 ms of overlap: f/(1+f) = 1/4, f = 1/3.
inline constexpr double kMostInterference = 100;
Result<double> fit_interference(const std::vector<OverlapSample>& samples);

}  // namespace motley::cost
