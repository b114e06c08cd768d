#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "motley/graph/rules/sharding_rule.h"

namespace motley::graph {

/// How devices hold a value.
enum class FormKind : std::uint8_t {
  kWhole,    ///< each holds all of it
  kSharded,  ///< each holds a part of one dimension
  kPartial,  ///< each holds a term; the value is their sum
};

/// A sharded value's dimension `dim` is [outer, extent, inner], and each device has consecutive
/// indices of the extent. A weight [3*12*64, 768] cut by its 12 heads within q, k and v: dim 0,
/// outer 3, extent 12, inner 64.
struct Form {
  FormKind kind = FormKind::kWhole;
  int dim = -1;
  std::int64_t outer = 1, extent = 1, inner = 1;

  auto operator<=>(const Form&) const = default;
};

inline constexpr Form kWholeForm{};
inline constexpr Form kPartialForm{FormKind::kPartial};

/// Prints "R", "P", "S(0: 12)" for an extent of 12, "S(0: 3*12*64)".
std::string print_form(const Form& form);
/// Parses such a text; empty for others. Requires numbers > 0 and a dimension >= 0.
std::optional<Form> parse_form(std::string_view text);

/// A tensor seen as [before, extent, after] along the dimension of a sharded form.
struct Slab {
  std::int64_t before = 1, extent = 1, after = 1;
  bool operator==(const Slab&) const = default;
};
Slab slab_of(const std::vector<std::int64_t>& shape, const Form& form);

/// One way to run an operator on all devices, with the forms of its operands and results.
struct Strategy {
  int factor = -1;                    ///< the factor that is split; -1: none
  std::int64_t outer = 1, inner = 1;  ///< the factor is outer * extent * inner
  std::vector<Form> operands, results;
  bool operator==(const Strategy&) const = default;
};

/// Returns the strategy in which each device runs the whole operator.
Strategy whole_strategy(const ShardingRule& rule);

/// Returns the strategy in which each device runs a part of the factor, cut inside as outer *
/// extent * inner. Empty if the factor is never split or not a multiple of outer * inner.
std::optional<Strategy> split_strategy(const ShardingRule& rule, int factor, std::int64_t outer = 1,
                                       std::int64_t inner = 1);

/// Returns the split in which an operand has this sharded form; empty if there is none.
std::optional<Strategy> follow(const ShardingRule& rule, int operand, const Form& form);

/// Returns the split in which a result has this sharded form; empty if there is none.
std::optional<Strategy> follow_result(const ShardingRule& rule, int result, const Form& form);

/// Returns the strategies in which each device computes terms of the results from terms of the
/// operands: one for each choice of one operand from each of the rule's terms.
std::vector<Strategy> linear_strategies(const ShardingRule& rule);

}  // namespace motley::graph
