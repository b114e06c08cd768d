#pragma once

#include <cstdint>
#include <vector>

namespace motley::cost {

/// What one profiling round says of a time: median of `samples` executions and their median
/// absolute deviation over the median.
struct Reading {
  double seconds = 0;
  double spread = 0;
  std::int64_t samples = 1;
};

/// Several rounds as one.
struct MergedReading {
  double seconds = 0;
  double deviation = 0;      ///< standard error of `seconds`, relative
  int rejected = 0;          ///< rounds left out as outliers
  bool has_drifted = false;  ///< the newest two agree with each other and not with the others:
                             ///< only they count
};

/// Merges the rounds of one entry, oldest first, at least one, all positive (zeros are taken as
/// they are when every round is zero).
///
/// Within a round the median of n samples has the variance (1.2533 * 1.4826 MAD)^2 / n (normal
/// samples). Rounds differ by more than that: a machine has better and worse minutes. The variance
/// between rounds tau^2 is estimated from what the rounds' scatter exceeds their own variance by
/// (DerSimonian and Laird, Controlled Clinical Trials 1986), and each round weighs
/// 1 / (variance + tau^2). With tau = 0 that is the inverse variance; with a large tau, the plain
/// mean. From three rounds on, one further than 3.5 robust standard deviations from their median
/// is left out (Iglewicz and Hoaglin, 1993); a deviation below 2 % is taken as 2 %, so that rounds
/// which agree by chance reject nothing.
///
/// Drift: of four rounds or more, the newest two lie on one side of all older ones, further than
/// 3.5 of the older ones' robust standard deviations (at least 2 %).
///
/// Example: 1.00, 1.02, 5.00 of equal spread: 5.00 is left out; the merged value is 1.01.
MergedReading merge_readings(const std::vector<Reading>& rounds);

}  // namespace motley::cost
