#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "motley/graph/rules/sharding_rule.h"
#include "motley/synth/step/rank_step.h"

namespace motley::synth {

/// One operator of a rank's step: what is here of its arguments, and where its instructions go.
/// They carry the operator's id and module; names are with their overload, "aten::sub.Tensor".
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
  /// How its split factor may be split; plain if none is.
  graph::Split split() const;
  /// Part of the split factor that is here, of 1; 1 if none is split.
  double part() const;

  // ---- operands
  /// The graph's argument, where it is of this type (a tensor, an integer).
  template <typename T>
  const T& given(std::size_t argument) const {
    return std::get<T>(op_.arguments[argument].value);
  }
  /// All arguments: tensors in the forms that the strategy wants, sizes as they are here.
  Arguments arguments() const;

  // ---- instructions
  void write(std::string_view name, Arguments arguments, std::vector<BufferId> outputs);
  /// Into a new temporary; if it is a view, of the first buffer among the arguments.
  BufferId call(std::string_view name, Arguments arguments, DType dtype, Shape shape);
  /// Of the same dtype and shape as another buffer.
  BufferId call_like(BufferId like, std::string_view name, Arguments arguments);
  BufferId zeros(DType dtype, const Shape& shape);
  /// The same values in another dtype, if need be.
  BufferId in_dtype(BufferId x, DType dtype);
  /// A sum over the devices, in place.
  void all_reduce(BufferId x) { builder().all_reduce(x, op_.module); }

  // ---- results
  DType dtype(std::size_t result) const { return rank_.graph().value(op_.outputs[result]).dtype; }
  Shape result_shape(std::size_t result) const;
  /// The buffer of a result; `base`: what it is a view of.
  BufferId define(std::size_t result, BufferId base = {});
  /// A buffer that has the result already.
  void set(std::size_t result, BufferId x) { rank_.set_value(op_.outputs[result], x); }
  /// The instruction that gives a result.
  void give(std::size_t result, std::string_view name, Arguments arguments);

 private:
  /// Sizes of the rule's factors here.
  std::vector<std::int64_t> local_factors() const;
  program::Argument make_argument(const graph::SymbolicArgument& argument,
                                  std::size_t& operand) const;

  RankStep& rank_;
  const OpId id_;
  const graph::Op& op_;
  const graph::ShardingRule& rule_;
  const graph::Strategy& strategy_;
};

/// The first buffer among the arguments; none: there is none.
BufferId first_buffer(const Arguments& arguments);

}  // namespace motley::synth
