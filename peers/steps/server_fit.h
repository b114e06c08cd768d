#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/base/units.h"

namespace motley::peers {

/// Measured speed of `workers` equal workers.
struct SpeedPoint {
  std::int64_t workers = 0;
  double steps_per_second = 0;  ///< > 0
};

struct ServerFit {
  Seconds service;
  Seconds step;  ///< of one worker alone
};

/// The two constants behind one curve (motley/elastic/server_queue.h) of equal workers and one
/// server, by relative least squares. For a given service / step the step follows in closed form
/// (speeds are inverse to it), and the ratio is searched to 10^-6. At least two points, of
/// different numbers of workers. Errors: cost.fit.
Result<ServerFit> fit_server(const std::vector<SpeedPoint>& curve);

}  // namespace motley::peers
