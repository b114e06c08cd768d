#pragma once

#include <vector>

namespace motley::search {

/// Weights with sum 1, and the least weighted mean over the rows.
struct Mix {
  std::vector<double> weights;
  double least = 0;
};

/// Returns the weights that maximise the least weighted mean over the rows. Rows have equal length,
/// at least one, with a positive entry each and no negative one. This is a zero-sum game between
/// columns and rows: min sum x such that row * x >= 1, x >= 0, solved by the simplex method on its
/// dual, which starts feasible; weights are x / sum x. Deterministic: ties by position.
///
/// Example: {1, 3} and {3, 1} give {1/2, 1/2}, 2.
Mix best_mix(const std::vector<std::vector<double>>& rows);

}  // namespace motley::search
