#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley::plan {

/// How the devices of a region run one operator; its rule (graph/rules/sharding_rule.h) numbers the
/// factors and operands. Without a split, every device runs the whole operator.
struct OperatorSplit {
  int factor = -1;                    ///< each device takes a part of it; -1: none
  std::int64_t outer = 1, inner = 1;  ///< the factor is outer * extent * inner
  std::vector<int> partial;           ///< operands of which each has a term; without a factor
  bool operator==(const OperatorSplit&) const = default;
};

/// Prints "whole", "factor 1", "factor 0: 3*_*64" (outer 3, inner 64) or "terms 0 2".
std::string print_split(const OperatorSplit& split);
/// Parses such a text; empty for others. Factor and operands are >= 0, outer and inner >= 1.
std::optional<OperatorSplit> parse_split(std::string_view text);

}  // namespace motley::plan
