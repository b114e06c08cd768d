#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::elastic {

/// Asynchronous workers of one kind on shared parameter servers: each computes gradients, hands
/// them in, takes the new parameters and starts again without waiting for others.
struct AsyncWorkers {
  std::int64_t count = 0;
  Seconds step;  ///< one worker alone with the servers; >= the servers' time
  bool operator==(const AsyncWorkers&) const = default;
};

/// Steps per second of a cluster, in total and of one worker of each kind.
struct ClusterSpeed {
  double steps_per_second = 0;
  std::vector<double> of_worker;
  bool operator==(const ClusterSpeed&) const = default;
};

/// Predicts the speed of asynchronous workers on shared parameter servers as a closed queueing
/// network: a worker is away for step - `service`, then needs the servers for `service`, one worker
/// at a time. Exact mean value analysis of a product-form network (Reiser and Lavenberg, JACM
/// 1980): with n workers a visit takes service (1 + workers found there, as with n - 1 workers in
/// all), so
///   speed(n) = n / (step - service + visit(n)), found there(n) = speed(n) visit(n).
/// With several kinds the recursion runs over all mixtures: the product of (count + 1) over the
/// kinds, at most 10^6.
///
/// Speed is the sum of the workers' while the servers are idle, and at most 1 / service. Service
/// times are assumed exponential: right for servers whose work varies as much as its mean, some
/// percent too slow below saturation with identical, steady workers.
///
/// `servers` > 1: the parameters are spread evenly and the servers work on a step at the same time,
/// so each needs service / servers, and a worker alone gains the difference.
///
/// Example: step 3 s, service 1 s. One worker: 1/3. Two: visit 1 + 1/3, 2 / (2 + 4/3) = 0.6. Three:
/// found 0.8, visit 1.8, 3 / 3.8 = 0.789.
///
/// Errors (elastic.server): service not > 0 or above a step, a negative count, too many mixtures.
Result<ClusterSpeed> estimate_cluster_speed(const std::vector<AsyncWorkers>& workers,
                                            Seconds service, std::int64_t servers = 1);

}  // namespace motley::elastic
