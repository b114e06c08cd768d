#pragma once

#include <vector>

namespace motley {

/// The value in the middle; of an even number the mean of the two in the middle. 0 of none.
double median(std::vector<double> values);

/// The same, but of an even number the upper of the two: always one of the values.
double upper_median(std::vector<double> values);

/// Middle and width of repeated measurements.
struct Scatter {
  double middle = 0;     ///< upper median
  double deviation = 0;  ///< upper median of the absolute deviations from it
  /// Relative to the middle; 0 where that is not above 0.
  double spread() const { return middle > 0 ? deviation / middle : 0; }
};
Scatter find_scatter(std::vector<double> values);

/// Standard deviation of normally distributed values over the median of their absolute deviations.
inline constexpr double kMadToDeviation = 1.4826;

/// Makes a sequence nondecreasing, as near as possible in the sense of least squares: where a value
/// is below the mean of those before it, they become one block with their common mean (pool
/// adjacent violators). Linear. Example: 3, 1, 2.5 become 2, 2, 2.5.
void make_nondecreasing(std::vector<double>& values);
/// The same where squares count by weights, one a value, above 0. Example: 3 of weight 2 and 0 of
/// weight 1 become 2, 2.
void make_nondecreasing(std::vector<double>& values, const std::vector<double>& weights);

}  // namespace motley
