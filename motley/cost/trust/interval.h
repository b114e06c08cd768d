#pragma once

#include <vector>

namespace motley::cost {

/// A prediction and its uncertainty: `coverage` of all measurements should be in [low, high].
struct PredictionInterval {
  double low = 0, value = 0, high = 0;
  bool operator==(const PredictionInterval&) const = default;
};

/// Returns the interval around a prediction from relative residuals (measured / predicted - 1) of
/// cases that the model was not fitted to: split-conformal quantiles (Vovk et al., Algorithmic
/// Learning in a Random World, 2005), which cover a new case of the same kind with probability
/// `coverage` for any distribution. Each tail has half of the rest. With fewer residuals than
/// ceil(2 / (1 - coverage)) - 1 the ends are the extreme ones, widened in proportion to what is
/// missing; with none it is [0, infinity).
PredictionInterval conformal_interval(double prediction, std::vector<double> residuals,
                                      double coverage = 0.8);

}  // namespace motley::cost
