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

/// An integer argument (or an element of a list argument) that states a number of elements:
/// `multiple` times the product of the factors. `element` is -1 outside lists.
struct SizeSlot {
  int argument = 0, element = -1;
  DimFactors factors;
  std::int64_t multiple = 1;
  bool operator==(const SizeSlot&) const = default;
};

/// How an operator can be split over devices, in factor notation: the dimensions of its tensors are
/// products of factors, and each device may take a part of one factor.
/// - A tensor that has the factor is cut along it.
/// - An operand without it is whole on every device.
/// - A result without it is partial: the sum over the devices is the result (or whole, if it does
///   not depend on the factor: `independent`).
///
/// `terms`: the operator is a sum of terms, each linear in every one of its operands. So if one
/// operand of each term is partial and the others are whole, the results are partial. If a term
/// lacks a factor that another term sums over, one of its operands must be partial.
///
/// Example: mm [4, 6] x [6, 5] has factors a 4, b 6, c 5: (a b) (b c) -> (a c), terms {0, 1}. addmm
/// adds a term {0} of its own: if b is split, the bias must be counted once in all.
///
/// A factor may be cut inside, as outer * extent * inner indices with parts of the extent.
struct ShardingRule {
  std::vector<Factor> factors;
  std::vector<ValueId> operands;  ///< tensors among the arguments, in order
  std::vector<TensorFactors> operand_factors, result_factors;
  std::vector<SizeSlot> slots;
  std::vector<std::vector<int>> terms;           ///< positions in `operands`
  std::vector<std::pair<int, int>> independent;  ///< (result, factor)
  std::vector<int> ignored;                      ///< operands in any form: only their dtype is read

  bool operator==(const ShardingRule&) const = default;
};

bool has_factor(const TensorFactors& tensor, int factor);

/// What batch norm normalises by in training.
enum class Statistics : std::uint8_t {
  kOfAll,  ///< of the whole batch, as on one device
  kOwn,    ///< of each device's own samples
};

/// Returns the rule of an operator at given sizes; empty if every device must run it whole. Source:
/// PyTorch's native_functions.yaml; tests/test_rules.py checks every rule by running its parts.
std::optional<ShardingRule> find_rule(const Graph& graph, OpId op, const Sizes& sizes,
                                      Statistics statistics = Statistics::kOfAll);

/// Returns the rule, or one that splits nothing.
ShardingRule find_rule_or_whole(const Graph& graph, OpId op, const Sizes& sizes,
                                Statistics statistics = Statistics::kOfAll);

/// Returns a rule that splits nothing and only lists the tensors: for one device, at any sizes.
ShardingRule rule_alone(const Op& op);

/// Dimensions of a tensor along which all its elements are equal, as bits.
using IdenticalDims = std::uint64_t;

/// Returns them for each result, given those of all values. Results made from nothing, by
/// repetition, or element by element from identical ones are identical.
std::vector<IdenticalDims> identical_results(const ShardingRule& rule,
                                             const std::vector<IdenticalDims>& values);

/// Returns whether an operator (without overload) is elementwise on numpy-broadcast operands.
bool is_elementwise(std::string_view op_name);

/// Prints "(a b) (b c) -> (a c)". A dimension of several factors is "a*b", of none "1"; `!` marks
/// factors that are never split, `~` means, `^` rewritten ones; missing tensors are "()".
std::string print_rule(const ShardingRule& rule);

}  // namespace motley::graph
