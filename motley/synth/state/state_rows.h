#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace motley::synth {

/// A device's rows [begin, end) of a parameter, and its share of their states.
struct OwnerRows {
  std::int64_t begin = 0, end = 0;
  double share = 0;  ///< >= 0
};

/// Assigns [0, extent) to holders in proportion to their shares. Returns, by holder, the first row
/// that it owns and the number of rows. Each row has one owner, which holds it; a holder's rows are
/// contiguous. Counts are as close to the shares as the held rows allow. A holder with share 0 owns
/// only rows that no other holder has. Returns none if it finds no such owners.
///
///  [0, 8) share 1, [0, 4) share 1, [4, 8) share 2  ->  2 + 2, 0 + 2, 4 + 4: the second has the
///  first two rows, the first the next two, the third the rest
std::optional<std::vector<std::pair<std::int64_t, std::int64_t>>> share_rows(
    const std::vector<OwnerRows>& holders, std::int64_t extent);

}  // namespace motley::synth
