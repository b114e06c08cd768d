#pragma once

#include <cstdint>
#include <vector>

namespace motley::cost {

/// One profiling round of a time: median of `samples` executions and their median absolute
/// deviation over the median.
struct Reading {
  double seconds = 0;
  double spread = 0;
  std::int64_t samples = 1;
};

struct MergedReading {
  double seconds = 0;
  double deviation = 0;  ///< relative standard error of `seconds`
  int rejected = 0;      ///< rounds rejected as outliers
  /// The newest two agree with each other but not with the others: only they count.
  bool has_drifted = false;
};

/// Merges one or more rounds of one entry, oldest first, all positive (if all are zero, the result
/// is zero).
///
/// Within a round the median of n samples has the variance (1.2533 * 1.4826 MAD)^2 / n (normal
/// samples). Rounds differ by more: a machine has better and worse minutes. The variance between
/// rounds tau^2 is estimated from the excess of the rounds' scatter over their own variance
/// (DerSimonian and Laird, Controlled Clinical Trials 1986), and each round has the weight 1 /
/// (variance + tau^2): the inverse variance for tau = 0, the plain mean for a large tau. From three
/// rounds on, a round further than 3.5 robust standard deviations from the median is rejected
/// (Iglewicz and Hoaglin, 1993); the deviation counts as at least 2 %, so that rounds which agree
/// by chance reject nothing.
///
/// Drift: of four rounds or more, the newest two are on one side of all older ones, further than
/// 3.5 of the older ones' robust standard deviations (at least 2 %).
///
/// Example: 1.00, 1.02, 5.00 of equal spread: 5.00 is rejected; the merged value is 1.01.
MergedReading merge_readings(const std::vector<Reading>& rounds);

}  // namespace motley::cost
