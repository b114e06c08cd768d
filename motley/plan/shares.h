#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley::plan {

/// Whole numbers that sum to `extent`, nearest to shares of it (not all zero; they need not sum to
/// 1): what is left after rounding down goes to the largest remainders, of equals to the first. How
/// the shares of a plan become samples, heads, channels.
///
/// Example: shares 3 : 1 of 9 are 7 and 2.
std::vector<std::int64_t> round_shares(const std::vector<double>& shares, std::int64_t extent);

/// Parts for people: "14:13:13"; of more than eight the least and the most, "62 to 63" (one or
/// more).
std::string parts_text(const std::vector<std::int64_t>& parts);

/// The samples of devices: "14:13:13"; of more than eight "64 devices, 62 to 63 each".
std::string samples_text(const std::vector<std::int64_t>& samples);

}  // namespace motley::plan
