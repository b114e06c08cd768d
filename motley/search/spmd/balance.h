#pragma once

#include <vector>

namespace motley::search {

/// Returns the shares that are best for a given strategy of each operator: an exact minimum of
///  shared * max_i(share_i / speed_i) + padded * n * max_i(share_i)
/// over n devices, where `shared` is the split work (in seconds of a device of speed 1) and
/// `padded` the seconds of exchanges that move n times the largest part. HAP (EuroSys 2024) solves
/// a linear program with a row for each step and device. All rows are proportional to these two, so
/// the optimum is at a vertex: for some device speed f, shares are proportional to min(speed_i, f).
/// Each distinct speed is tried; ties go to the least, i.e. the most even shares. O(n log n).
///
/// Example: speeds 3 and 1, work 6. Without padded time 3 : 1 (6 / 4 = 1.5 s against 3 s); with
/// padded = 2 still 3 : 1 (1.5 + 2 * 2 * 0.75 = 4.5 s against 3 + 2 = 5 s); with padded = 4 even
/// (7 s against 7.5 s).
std::vector<double> balance(const std::vector<double>& speeds, double shared, double padded);

}  // namespace motley::search
