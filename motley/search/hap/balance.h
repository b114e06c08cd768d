#pragma once

#include "motley/search/hap/cost.h"

namespace motley::search {

/// The shares that make a program of time `time` fastest on `cluster`: an exact minimum of
///   shared_flops * max_i(share_i / speed_i) + padded_s * devices * max_i(share_i).
/// HAP solves a linear program with a row for each step and device; all rows are proportional to
/// these two, so the optimum lies at a vertex: for some device speed f, shares are proportional to
/// min(speed_i, f). Each distinct speed is tried; ties go to the least, i.e. the most even shares.
/// O(n log n).
///
/// Example: speeds 3, 1 and 6 flops. Without padded time 3 : 1 (6 / 4 = 1.5 s against 3 s);
/// with padded_s = 2 still 3 : 1 (1.5 + 2 * 2 * 0.75 = 4.5 s against 3 + 2 = 5 s); with padded_s =
/// 4 even (7 s against 7.5 s).
Shares balance(const LinearTime& time, const HapCluster& cluster);

}  // namespace motley::search
