#pragma once

#include <functional>
#include <vector>

#include "motley/base/result.h"

namespace motley::peers {

/// A prior: log(parameter) is normal around log(value) with this deviation (0.2: about 20 %).
struct LogPrior {
  double value = 1;   ///< > 0
  double spread = 1;  ///< > 0
};

/// Returns predictions (> 0), one per target, for given parameters (> 0).
using Predictor = std::function<std::vector<double>(const std::vector<double>&)>;

/// Fits parameters x > 0 of a nonlinear model, minimizing
///   sum_i (log(predict(x)_i / targets_i) / error_spread)^2 +
///   sum_j (log(x_j / priors_j.value) / priors_j.spread)^2,
/// so relative errors count, and a parameter without evidence keeps its prior. `error_spread`: the
/// error of a good model, as a standard deviation. Levenberg-Marquardt on log(x) from the priors
/// (Nocedal and Wright, Numerical Optimization, section 10.3), derivatives by differences.
/// Deterministic. Usage error (cost.fit) without targets or for targets that are not > 0. About 10
/// rounds of one prediction per parameter.
///
/// Example: one parameter, predict(x) = {x}, target 4, prior 1 with spread 0.1, error_spread 0.1:
/// both weigh the same, x = exp((log 4 + log 1) / 2) = 2.
Result<std::vector<double>> fit_log_parameters(const Predictor& predict,
                                               const std::vector<double>& targets,
                                               const std::vector<LogPrior>& priors,
                                               double error_spread);

}  // namespace motley::peers
