#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace motley::plan {

/// How the devices of a region run one operator of the graph; the operator's rule
/// (graph/rules/sharding_rule.h) gives its factors and operands numbers. Not split: every device
/// runs all of it.
struct OperatorSplit {
  int factor = -1;                    ///< of which each device takes a part; -1: none
  std::int64_t outer = 1, inner = 1;  ///< the factor is outer * extent * inner
  std::vector<int> partial;  ///< operands of which each device takes a term; without a factor
  bool operator==(const OperatorSplit&) const = default;
};

/// "whole", "factor 1", "factor 0: 3*_*64" (outer 3, inner 64), "terms 0 2".
std::string print_split(const OperatorSplit& split);
/// The inverse; empty for other texts. Factor and operands are 0 or more, outer and inner 1 or
/// more.
std::optional<OperatorSplit> parse_split(std::string_view text);

}  // namespace motley::plan
