#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace motley::plan {

/// Returns whole numbers that sum to `extent`, nearest to the shares of it. The shares are not all
/// zero and need not sum to 1. The rest after rounding down goes to the largest remainders, among
/// equal ones to the first. This turns the shares of a plan into samples, heads and channels.
///
/// Example: shares 3 : 1 of 9 are 7 and 2.
std::vector<std::int64_t> round_shares(const std::vector<double>& shares, std::int64_t extent);

/// Returns parts for people: "14:13:13"; more than eight as their range, "62 to 63". At least one.
std::string parts_text(const std::vector<std::int64_t>& parts);

/// Returns the samples of devices: "14:13:13"; of more than eight "64 devices, 62 to 63 each".
std::string samples_text(const std::vector<std::int64_t>& samples);

}  // namespace motley::plan
