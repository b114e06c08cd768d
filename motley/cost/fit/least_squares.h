#pragma once

#include <vector>

#include "motley/base/result.h"

namespace motley::cost {

struct FitOptions {
  /// Coefficients are >= 0 (Lawson and Hanson, Solving Least Squares Problems, chapter 23): a cost
  /// cannot be negative, so a fit with a negative coefficient has the wrong terms.
  bool is_nonnegative = true;
  /// Weight of a penalty on the coefficients, each in units of its column's mean over the targets.
  /// 0: none. Small values keep nearly collinear columns apart.
  double ridge = 0.0;
};

/// Returns the x that minimises sum_i ((rows[i] . x - targets[i]) / targets[i])^2: the mean squared
/// *relative* error, so a microsecond and a second count alike. Scales columns. Usage error
/// (cost.fit): no rows, unequal rows, a target that is not > 0. O(rows columns^2) per active set.
Result<std::vector<double>> fit_relative(const std::vector<std::vector<double>>& rows,
                                         const std::vector<double>& targets,
                                         const FitOptions& options = {});

}  // namespace motley::cost
