#pragma once

#include <cstdint>

namespace motley::plan {

/// Operators of the graph that follow each other: [first, end).
struct OpRange {
  std::int64_t first = 0, end = 0;
  bool operator==(const OpRange&) const = default;
};

/// Consecutive samples of a global batch.
struct Stretch {
  std::int64_t first = 0, count = 0;
  bool operator==(const Stretch&) const = default;
};

}  // namespace motley::plan
