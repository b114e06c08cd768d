#pragma once

#include <optional>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"
#include "motley/cost/links/collectives.h"

namespace motley::cost {

/// A collective measured alone: `bytes` is what each rank holds in the end (or the beginning, of a
/// reduce-scatter): the whole tensor, of an all-to-all a rank's own part.
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

/// Time over the size for one operation, route and number of ranks: continuous, of one piece or
/// two.
/// - kFaster, the smaller of two: a library that changes to the protocol that is faster at this
///   size (little latency and half the bandwidth, or the other way round);
/// - kSlower, the larger of two: what runs side by side, such as a launch that takes longer than
///   the transfer of what is small.
struct SizeCurve {
  enum class Shape { kOne, kFaster, kSlower };
  Shape shape = Shape::kOne;
  Affine small, large;  ///< equal for kOne; two: `small` below the size where they cross
  const Affine& piece(double bytes) const;  ///< that holds at this size
  Seconds at(double bytes) const { return piece(bytes).at(bytes); }
};

/// The curve of least mean squared relative error among: one piece (fit_relative); and both forms
/// of two, each piece fitted to the samples on its side of a split, over 32 splits spread over the
/// sizes. Two pieces are taken only if each has three sizes, they cross as the shape says, and the
/// error falls by a tenth; so four points on a line stay one line. `ranks` of the samples do not
/// matter here. Usage error (cost.fit): fewer than two sizes, a time that is not > 0. Beyond the
/// samples the outer pieces go on. O(32 samples).
Result<SizeCurve> fit_collective(const std::vector<CollectiveSample>& samples);

/// What an operation costs among any number of ranks with equal ports at one switch.
struct TransportFit {
  Collective op;
  Algorithm algorithm;
  Transport transport;
  std::optional<BytesPerSecond> port;  ///< each way, of each rank; none: not seen to limit
  Affine among(int ranks) const;       ///< ranks > 1; O(ranks^2)
};

/// Launch, latency of a message, local seconds a byte and the port's rate, all >= 0, by relative
/// least squares over samples of several numbers of ranks:
///   time = launch + messages(n) latency + bytes local + crossing(n, bytes) / port
/// where messages and crossing are those of build_transfer for the algorithm. An all-reduce by
/// ring: launch + 2 (n-1) latency + B local + 2 (n-1)/n B / port.
///
/// Holds where all groups see the same fabric (one switch, one PCIe root); not where few ranks
/// have better links than many (NVLink pairs, cube meshes): there each number of ranks has its
/// own curve. Usage error (cost.fit) for fewer than two numbers of ranks (the terms cannot be told
/// apart), fewer than two sizes, ranks < 2, or a time that is not > 0.
///
/// Example: the public tables of NCCL on eight A100 (NVLink 3, 300 GB/s each way), fitted on 2 and
/// 4 ranks: 297 GB/s, and 1.9 % mean error for 8.
Result<TransportFit> fit_transport(Collective op, Algorithm algorithm,
                                   const std::vector<CollectiveSample>& samples);

/// Compute measured beside communication: `alone` without it, `together` with it; the
/// communication that was under way meanwhile takes `overlap` with nothing beside it.
struct OverlapSample {
  Seconds alone, together, overlap;
};

/// How much slower compute is while its device communicates: at 1/(1 + f) of its speed, so that
///   together = alone + f / (1 + f) * overlap;
/// 0 <= f <= kMostInterference by relative least squares, 0 = not at all, the most = compute stands
/// still meanwhile. (The processor's cores or the GPU's multiprocessors and memory are shared;
/// measured, not derived.) As `overlap` is what the communication takes alone, what it is slowed
/// itself, where it takes compute's cores, is in f. Usage error (cost.fit): no overlap, a time that
/// is not > 0.
///
/// Example: 10 ms alone, 12 ms with 8 ms of overlap: f/(1+f) = 1/4, f = 1/3.
inline constexpr double kMostInterference = 100;
Result<double> fit_interference(const std::vector<OverlapSample>& samples);

}  // namespace motley::cost
