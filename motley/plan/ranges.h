#pragma once

#include <cstdint>
#include <vector>

namespace motley::plan {

/// Consecutive operators of the graph: [first, end).
struct OpRange {
  std::int64_t first = 0, end = 0;
  bool operator==(const OpRange&) const = default;
};

/// Appends one operator that follows all operators of the ranges.
inline void append(std::vector<OpRange>& ranges, std::int64_t op) {
  if (!ranges.empty() && ranges.back().end == op)
    ++ranges.back().end;
  else
    ranges.push_back({op, op + 1});
}

inline std::int64_t count_operators(const std::vector<OpRange>& ranges) {
  std::int64_t count = 0;
  for (const OpRange& range : ranges) count += range.end - range.first;
  return count;
}

/// Consecutive samples of a global batch.
struct Stretch {
  std::int64_t first = 0, count = 0;
  bool operator==(const Stretch&) const = default;
};

}  // namespace motley::plan
