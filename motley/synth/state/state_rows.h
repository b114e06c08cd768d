#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace motley::synth {

/// What a device has of a parameter, rows [begin, end), and how much of its states it is to keep.
struct OwnerRows {
  std::int64_t begin = 0, end = 0;
  double share = 0;  ///< >= 0
};

/// Shares [0, extent) out among those who have the rows: by holder where what it owns begins, and
/// how many rows. Each owns rows that follow each other, of those it has; each row has one owner;
/// counts are as the shares say, as nearly as what holders have allows. Who has no share owns
/// something only where nobody else has it. None where no such owners are found.
///
///   [0, 8) share 1, [0, 4) share 1, [4, 8) share 2  ->  2 + 2, 0 + 2, 4 + 4 : of the second the
///   first two rows, of the first the next two, of the third the rest
std::optional<std::vector<std::pair<std::int64_t, std::int64_t>>> share_rows(
    const std::vector<OwnerRows>& holders, std::int64_t extent);

}  // namespace motley::synth
