#pragma once

#include <cstdint>
#include <vector>

namespace motley::plan {

/// Whole numbers that sum to `extent`, nearest to shares of it (not all zero; they need not sum to
/// 1): what is left after rounding down goes to the largest remainders, of equals to the first. How
/// the shares of a plan become samples, heads, channels.
///
/// Example: shares 3 : 1 of 9 are 7 and 2.
std::vector<std::int64_t> round_shares(const std::vector<double>& shares, std::int64_t extent);

}  // namespace motley::plan
