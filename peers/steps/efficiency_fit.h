#pragma once

#include <vector>

#include "motley/base/result.h"
#include "motley/cost/operators/kind_times.h"

namespace motley::peers {

/// A measured operator, or several in a row, on a kind of device.
struct KindSample {
  double flop_seconds = 0;  ///< flops / peak, summed
  double byte_seconds = 0;  ///< bytes / bandwidth, summed
  int launches = 0;
  Seconds measured;
};
/// Fits efficiencies and launch cost by relative least squares of the sum
///   launches launch + flop_seconds / e_f + byte_seconds / e_b.
Result<cost::KindEfficiency> fit_efficiency(const std::vector<KindSample>& samples);

}  // namespace motley::peers
