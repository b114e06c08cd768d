#pragma once

#include <vector>

namespace motley {

/// Returns the middle value, or the mean of the two middle ones; 0 for no values.
double median(std::vector<double> values);

/// Returns the middle value, or the upper of the two middle ones: always one of the values.
double upper_median(std::vector<double> values);

/// Middle and width of repeated measurements.
struct Scatter {
  double middle = 0;     ///< upper median
  double deviation = 0;  ///< upper median of the absolute deviations from it
  /// Returns the deviation relative to the middle; 0 if the middle is not above 0.
  double spread() const { return middle > 0 ? deviation / middle : 0; }
};
Scatter find_scatter(std::vector<double> values);

/// Ratio of standard deviation to median absolute deviation for normally distributed values.
inline constexpr double kMadToDeviation = 1.4826;

/// Makes a sequence nondecreasing by isotonic least squares (pool adjacent violators): a value
/// below the mean of those before it joins them in a block. Linear. 3, 1, 2.5 become 2, 2, 2.5.
void make_nondecreasing(std::vector<double>& values);
/// Weights the squares, one weight > 0 per value. 3 of weight 2 and 0 of weight 1 become 2, 2.
void make_nondecreasing(std::vector<double>& values, const std::vector<double>& weights);

}  // namespace motley
