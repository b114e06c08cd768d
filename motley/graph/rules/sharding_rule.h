#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/graph/rules/factors.h"

namespace motley::graph {

/// An integer argument (or element of a list argument; -1: not in a list) that says how many
/// elements there are: `multiple` times the product of the factors.
struct SizeSlot {
  int argument = 0, element = -1;
  DimFactors factors;
  std::int64_t multiple = 1;
  bool operator==(const SizeSlot&) const = default;
};

/// How an operator can be spread over devices, in factor notation: the dimensions of its tensors
/// are products of factors, and each device may take a part of one factor.
/// - A tensor that has the factor is cut along it.
/// - An operand without it is whole on every device.
/// - A result without it is partial: the sum over the devices is the result (or whole, where it
///   does not depend on the factor: `independent`).
///
/// `terms`: the operator is a sum of terms, each linear in every one of its operands. So with one
/// operand of each term partial and the others whole, the results are partial; and if a term lacks
/// a factor that another term sums over, one operand of that term must be partial.
///
/// Example: mm [4, 6] x [6, 5] has factors a 4, b 6, c 5: (a b) (b c) -> (a c), terms {0, 1}.
/// addmm adds a term {0} of its own: when b is split, the bias must be there once in all.
///
/// A factor may be cut within: as outer * extent * inner indices, of which a device takes part of
/// the extent.
struct ShardingRule {
  std::vector<Factor> factors;
  std::vector<ValueId> operands;  ///< tensors among the arguments, in order
  std::vector<TensorFactors> operand_factors, result_factors;
  std::vector<SizeSlot> slots;
  std::vector<std::vector<int>> terms;           ///< operands by position in `operands`
  std::vector<std::pair<int, int>> independent;  ///< (result, factor)
  std::vector<int> ignored;  ///< operands that may be in any form: only their dtype is read

  bool operator==(const ShardingRule&) const = default;
};

/// Does a tensor have a factor?
bool has_factor(const TensorFactors& tensor, int factor);

/// What batch norm normalises by in training.
enum class Statistics : std::uint8_t {
  kOfAll,  ///< of the whole batch, as one device does
  kOwn,    ///< of the samples that each device has
};

/// The rule of an operator at given sizes; empty: none is known, every device must run it whole.
/// Source: the operators' definitions (PyTorch's native_functions.yaml); every rule is checked by
/// running its parts (tests/test_rules.py).
std::optional<ShardingRule> find_rule(const Graph& graph, OpId op, const Sizes& sizes,
                                      Statistics statistics = Statistics::kOfAll);

/// The same, but an operator without a rule gets one that splits nothing.
ShardingRule find_rule_or_whole(const Graph& graph, OpId op, const Sizes& sizes,
                                Statistics statistics = Statistics::kOfAll);

/// A rule that splits nothing and says no more than which tensors there are: for one device, at any
/// sizes.
ShardingRule rule_alone(const Op& op);

/// Dimensions of a tensor along which all its elements are equal, as bits.
using IdenticalDims = std::uint64_t;

/// Of each result, by those of all values: what an operator makes out of nothing, or of what it
/// repeats, is identical, and so is what it makes element by element of what is identical.
std::vector<IdenticalDims> identical_results(const ShardingRule& rule,
                                             const std::vector<IdenticalDims>& values);

/// Whether an operator (by name without overload) works element by element over operands that numpy
/// broadcasting aligns.
bool is_elementwise(std::string_view op_name);

/// "(a b) (b c) -> (a c)"; a dimension of several factors is "a*b", of none "1"; `!` marks factors
/// that are never split, `~` means, `^` rewritten ones; tensors that are not there are "()".
std::string print_rule(const ShardingRule& rule);

}  // namespace motley::graph
