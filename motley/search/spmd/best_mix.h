#pragma once

#include <vector>

namespace motley::search {

/// Weights, sum 1, and the least of the weighted means of some rows.
struct Mix {
  std::vector<double> weights;
  double least = 0;
};

/// The weights at which the least weighted mean over the rows is largest. Rows are equally long,
/// one or more, with a positive entry each and no negative one. As a game between who picks columns
/// and who picks rows: min sum x such that row * x >= 1, x >= 0, solved by the simplex method on
/// its dual, which starts feasible; weights are x / sum x. Ties by position: deterministic.
///
/// Example: of {1, 3} and {3, 1} it is {1/2, 1/2}, 2.
Mix best_mix(const std::vector<std::vector<double>>& rows);

}  // namespace motley::search
