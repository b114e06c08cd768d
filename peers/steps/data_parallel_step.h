#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::peers {

/// A measured data-parallel step.
struct DataParallelSample {
  std::int64_t hosts = 0, replicas = 0;
  double batch = 0;  ///< samples of one replica; > 0
  Seconds measured;  ///< > 0
  bool operator==(const DataParallelSample&) const = default;
};

/// Step of a data-parallel job over several hosts, when nothing is known of its layers:
///   (compute(batch)^p + exchange(replicas)^p)^(1/p),
///   exchange(replicas) = base + doubling log2(replicas).
/// p tells how far the exchange of gradients hides behind the backward pass: 1 not at all, infinity
/// wholly (Qiao et al., OSDI 2021, equation 11). The exchange has a part that no longer grows
/// once there is more than one host (2 (n-1)/n of the gradients cross the slowest link) and one
/// that grows with the depth of the tree of replicas and with the wait for the last of them.
/// compute(batch): linear between the batches measured on one device, beyond them as the nearest
/// two (one batch: proportional to it).
struct DataParallelStep {
  std::vector<std::pair<double, Seconds>> compute;  ///< batch, time; ascending, at least one
  Seconds base, doubling;
  double power = 1;  ///< p, >= 1
};

/// Example: compute 3 s, base 2 s, doubling 1 s, 4 replicas, p = 2: exchange 4 s, step 5 s.
Seconds estimate_step(const DataParallelStep& model, double batch, std::int64_t replicas);

/// Compute times: medians of the samples of one replica. The other constants: those of more than
/// one host, by relative least squares (Levenberg and Marquardt on the logarithms, from three
/// starts of p; constants are > 0). Samples of several replicas on one host are left out. Errors:
/// cost.fit, without samples of one replica, or fewer than three of several hosts.
Result<DataParallelStep> fit_step(const std::vector<DataParallelSample>& samples);

}  // namespace motley::peers
