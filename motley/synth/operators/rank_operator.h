#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/graph/rules/sharding_rule.h"
#include "motley/synth/step/rank_step.h"

namespace motley::synth {

/// One operator of a rank's step: its local arguments, and the builder for its instructions, which
/// carry the operator's id and module. Names include the overload: "aten::sub.Tensor".
class RankOperator {
 public:
  /// `rank` must outlive it.
  RankOperator(RankStep& rank, OpId id);

  RankStep& rank() const { return rank_; }
  ProgramBuilder& builder() const { return rank_.builder(); }
  OpId id() const { return id_; }
  const graph::Op& op() const { return op_; }
  const graph::Strategy& strategy() const { return strategy_; }
  const graph::Form& operand_form(std::size_t operand) const { return strategy_.operands[operand]; }
  const graph::Form& result_form(std::size_t result) const { return strategy_.results[result]; }
  /// How its split factor may be split; plain if none is split.
  graph::Split split() const;
  /// Local part of the split factor, of 1; 1 if none is split.
  double part() const;

  // ---- operands
  /// Returns the graph's argument, which must have this type (a tensor, an integer).
  template <typename T>
  const T& given(std::size_t argument) const {
    return std::get<T>(op_.arguments[argument].value);
  }
  /// Returns all arguments: tensors in the forms that the strategy wants, local sizes.
  Arguments arguments() const;

  // ---- instructions
  void write(std::string_view name, Arguments arguments, std::vector<BufferId> outputs);
  /// Calls into a new temporary. A view is of the first buffer among the arguments.
  BufferId call(std::string_view name, Arguments arguments, DType dtype, Shape shape);
  /// Calls into a temporary with the dtype and shape of `like`.
  BufferId call_like(BufferId like, std::string_view name, Arguments arguments);
  BufferId zeros(DType dtype, const Shape& shape);
  /// Converts to another dtype if needed.
  BufferId in_dtype(BufferId x, DType dtype);
  void all_reduce(BufferId x) { builder().all_reduce(x, op_.module); }

  // ---- results
  DType dtype(std::size_t result) const { return rank_.graph().value(op_.outputs[result]).dtype; }
  Shape result_shape(std::size_t result) const;
  /// Defines the buffer of a result; `base`: the buffer that it is a view of.
  BufferId define(std::size_t result, BufferId base = {});
  /// Makes an existing buffer the result.
  void set(std::size_t result, BufferId x) { rank_.set_value(op_.outputs[result], x); }
  void give(std::size_t result, std::string_view name, Arguments arguments);

 private:
  std::vector<std::int64_t> local_factors() const;
  program::Argument make_argument(const graph::SymbolicArgument& argument,
                                  std::size_t& operand) const;

  RankStep& rank_;
  const OpId id_;
  const graph::Op& op_;
  const graph::ShardingRule& rule_;
  const graph::Strategy& strategy_;
};

/// Returns the first buffer among the arguments; none if there is none.
BufferId first_buffer(const Arguments& arguments);

}  // namespace motley::synth
