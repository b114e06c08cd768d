#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/graph/rules/sharding_rule.h"

namespace motley::graph {

using Shape = std::vector<std::int64_t>;

inline std::int64_t at(const Shape& shape, int dim) { return shape[static_cast<std::size_t>(dim)]; }
inline const DimFactors& at(const TensorFactors& factors, int dim) {
  return factors[static_cast<std::size_t>(dim)];
}
inline DimFactors& at(TensorFactors& factors, int dim) {
  return factors[static_cast<std::size_t>(dim)];
}
inline int rank_of(const Shape& shape) { return static_cast<int>(shape.size()); }

/// Builds the rule of one operator. Operands are named by the position of their argument, results
/// by their own. Both begin without factors; finish() refuses factors that do not give the shapes.
class RuleBuilder {
 public:
  RuleBuilder(const Graph& graph, OpId op, const Sizes& sizes,
              Statistics statistics = Statistics::kOfAll);

  const Op& op() const { return *op_; }
  Statistics statistics() const { return statistics_; }

  // ---- the operator
  /// Returns the position in rule().operands of an argument's first tensor; -1: there is none.
  int operand(int argument) const;
  /// Returns the positions of all tensors of a list argument.
  std::vector<int> operands_at(int argument) const;
  int operand_count() const { return static_cast<int>(rule_.operands.size()); }
  int result_count() const { return static_cast<int>(op_->outputs.size()); }
  const std::vector<std::int64_t>& operand_shape(int operand) const;
  const std::vector<std::int64_t>& result_shape(int result) const;
  bool has_result(int result) const;  ///< false if the operator leaves it undefined
  DType operand_dtype(int operand) const;
  DType result_dtype(int result) const;
  std::optional<std::int64_t> integer(int argument) const;
  std::optional<std::int64_t> integer(int argument, int element) const;
  std::optional<double> number(int argument) const;
  bool truth(int argument) const;
  int list_length(int argument) const;  ///< 0 if it is not a list
  /// Returns a dimension argument counted from 0; empty if it is not a dimension of `rank`.
  std::optional<int> dim(int argument, int rank) const;
  /// Returns one dimension or a list; none and an empty list mean all.
  std::vector<int> dims(int argument, int rank) const;

  /// Returns the dimension along which an operand holds 0, 1, 2, ...; empty if none, or one place.
  std::optional<int> row_number_dim(int operand) const;

  // ---- the rule
  int add_factor(std::int64_t size, Split split = Split::kPlain);
  TensorFactors add_factors(const std::vector<std::int64_t>& shape, Split split = Split::kPlain);
  const TensorFactors& operand_factors(int operand) const {
    return rule_.operand_factors[static_cast<std::size_t>(operand)];
  }
  Factor& factor(int id) { return rule_.factors[static_cast<std::size_t>(id)]; }
  void never(const DimFactors& dim);
  void set_split(const DimFactors& dim, Split split);
  void set_operand(int operand, TensorFactors factors);  ///< no effect for operand -1
  void set_result(int result, TensorFactors factors);    ///< no effect for an undefined result
  /// Of the first operand and result, which is linear in it. Always true.
  bool set_linear(TensorFactors operand, TensorFactors result);
  /// Sets all operands and results, by `like(shape)`.
  template <typename Like>
  void set_all(const Like& like) {
    for (int i = 0; i < operand_count(); ++i) set_operand(i, like(operand_shape(i)));
    for (int r = 0; r < result_count(); ++r) set_result(r, like(result_shape(r)));
  }
  /// Sets all operands as they broadcast to `wide`. False where one does not align.
  bool broadcast_operands(const TensorFactors& wide);
  /// Returns the factors of `wide` that numpy broadcasting aligns with `shape`; broadcast
  /// dimensions of size 1 have none. Empty if the shapes do not align.
  std::optional<TensorFactors> broadcast(const std::vector<std::int64_t>& shape,
                                         const TensorFactors& wide) const;
  void add_slot(int argument, int element, DimFactors factors, std::int64_t multiple = 1);
  /// States that the elements of a list argument are the sizes of these dimensions; -1 stays.
  void add_shape_slots(int argument, const TensorFactors& dims);
  void add_term(std::vector<int> operands);
  void set_independent(int result, int factor);
  void ignore(int operand) { rule_.ignored.push_back(operand); }

  std::optional<ShardingRule> finish();

 private:
  void drop_unused_factors();

  const Graph* graph_;
  const Op* op_;
  const Sizes* sizes_;
  Statistics statistics_;
  ShardingRule rule_;
  std::vector<int> positions_;  // argument of each operand
  std::vector<std::vector<std::int64_t>> operand_shapes_, result_shapes_;
  std::vector<DType> operand_dtypes_, result_dtypes_;
};

using RuleMaker = bool (*)(RuleBuilder& rule);
struct NamedRuleMaker {
  std::string_view name;  ///< without overload
  RuleMaker make;         ///< returns false if these arguments have no rule
};

/// The parts of the table: operators that move elements; products, norms and similar ones; look-ups
/// and losses. All elementwise operators share one rule (elementwise_rule).
std::span<const NamedRuleMaker> movement_rules();
std::span<const NamedRuleMaker> network_rules();
std::span<const NamedRuleMaker> lookup_rules();

bool elementwise_rule(RuleBuilder& rule);

}  // namespace motley::graph
