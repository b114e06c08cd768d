#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "motley/graph/edit.h"
#include "motley/synth/ranks/pass_values.h"

namespace motley::synth {

/// Replaces `batch` in an expression.
graph::SizeExpr with_batch(const graph::SizeExpr& expr, const std::string& instead);

/// What an added operator is for: an operator of the model (null: any) in a pass (-1: all
/// replicas).
struct AddedFor {
  const graph::Op* beside = nullptr;
  std::int64_t pass = -1;
};

/// The graph of a step in passes while it grows.
class PassGraph {
 public:
  /// The step must outlive it.
  explicit PassGraph(const PassedStep& step);

  const graph::Value& value(ValueId id) const { return made_.graph.value(id); }
  std::size_t size() const { return made_.graph.ops.size(); }
  ValueId add_value(graph::Value value) { return graph::add_value(made_.graph, std::move(value)); }
  /// Adds an operator whose outputs are there.
  void add_op(graph::Op op, Copy copy);
  /// Adds an operator that the model lacks, such as "aten::add.Tensor"; returns its result.
  ValueId add(std::string_view name, graph::SymbolicArguments arguments, DType dtype,
              std::vector<graph::SizeExpr> shape, const AddedFor& what = {});
  /// Adds one whose result has a value's dtype and shape.
  ValueId add_like(ValueId like, std::string_view name, graph::SymbolicArguments arguments,
                   const AddedFor& what);
  ValueId add_zeros(ValueId like, const AddedFor& what);
  /// Adds a term to the sum of the term's replica, in its pass.
  void add_term(ValueId term, const AddedFor& what, std::vector<ValueId>& sums);
  /// Adds up the sums of all replicas.
  ValueId sum_replicas(const std::vector<ValueId>& sums, const graph::Op& beside);
  ValueId scale(ValueId value, double factor, const graph::Op* beside = nullptr) {
    return add_like(value, "aten::mul.Scalar", {{value}, {factor}}, {beside});
  }
  /// Returns a copy in a pass; -1: of all replicas.
  Copy copy_in(std::int64_t pass) const;
  /// Evaluates a size in a pass.
  graph::SizeExpr in_pass(const graph::SizeExpr& expr, std::int64_t pass) const;

  Accumulation take() { return std::move(made_); }

 private:
  const PassedStep& step_;
  Accumulation made_;
};

}  // namespace motley::synth
