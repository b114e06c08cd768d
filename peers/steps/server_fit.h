#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::peers {

struct SpeedPoint {
  std::int64_t workers = 0;
  double steps_per_second = 0;  ///< > 0
};

struct ServerFit {
  Seconds service;
  Seconds step;  ///< of one worker alone
};

/// Fits the two constants of one curve (motley/elastic/server_queue.h) of equal workers and one
/// server, by relative least squares. For a given service / step the step has a closed form (speeds
/// are inverse to it); the ratio is searched to 10^-6. Requires two or more points with different
/// numbers of workers. Errors: cost.fit.
Result<ServerFit> fit_server(const std::vector<SpeedPoint>& curve);

}  // namespace motley::peers
