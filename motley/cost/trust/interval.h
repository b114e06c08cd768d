#pragma once

#include <vector>

namespace motley::cost {

/// A prediction and how far to trust it: `coverage` of all measurements are to lie in [low, high].
struct PredictionInterval {
  double low = 0, value = 0, high = 0;
  bool operator==(const PredictionInterval&) const = default;
};

/// Interval around a prediction from relative residuals (measured / predicted - 1) of cases that
/// the model was not fitted on: split-conformal quantiles (Vovk et al., Algorithmic Learning in a
/// Random World, 2005), which cover a new case of the same kind with probability `coverage`
/// whatever the distribution. Both tails have half of the rest. Fewer residuals than
/// ceil(2 / (1 - coverage)) - 1 make the tails the extreme ones, widened in proportion to
/// what is missing; none: [0, infinity).
PredictionInterval conformal_interval(double prediction, std::vector<double> residuals,
                                      double coverage = 0.8);

}  // namespace motley::cost
