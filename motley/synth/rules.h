#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/graph/graph.h"
#include "motley/synth/forms.h"

namespace motley::synth {

/// A tensor among an operator's arguments.
struct Operand {
  ValueId id;
  Form form;
  int position = 0;  ///< of the argument; elements of a tensor list share it
};

/// What a rule sees of one operator, and where it puts its answer: a form for each output, the
/// partial operands that must be summed first, and the rewrite. A rule returns false, with a
/// reason, where it cannot keep the samples apart.
class RuleCall {
 public:
  RuleCall(const graph::Graph& graph, const FormTable& table, plan::BatchNormMode batch_norm,
           OpId op);

  const graph::Graph& graph() const { return *graph_; }
  const graph::Op& op() const { return *op_; }
  plan::BatchNormMode batch_norm() const { return batch_norm_; }
  std::vector<Operand>& operands() { return operands_; }

  /// First tensor of the argument at `position`; null if there is none.
  Operand* operand(int position);
  /// Its form; replicated if there is no tensor.
  Form form(int position);
  const graph::Argument& argument(int position) const;
  std::optional<std::int64_t> integer(int position) const;
  bool truth(int position) const;
  /// A dimension argument, or a list of them, of a tensor of `rank`, counted from 0. None and an
  /// empty list mean all dimensions.
  std::vector<int> dims(int position, int rank) const;
  int rank(ValueId value) const;
  const BatchAxis& axis(ValueId value) const { return table_->axes[value.index()]; }
  /// Size of a dimension that does not depend on the batch.
  std::int64_t extent(ValueId value, int dim) const;
  ValueId output(int index) const { return op_->outputs[static_cast<std::size_t>(index)]; }
  int output_count() const { return static_cast<int>(op_->outputs.size()); }

  /// Asks for the sum of a partial operand, which then counts as replicated. Others: no effect.
  void sum(Operand& operand);
  void sum_all();
  /// The one row form of all sharded operands as numpy broadcasting aligns them; replicated if none
  /// is sharded. Empty (with a reason) when they disagree.
  std::optional<Form> merge();

  void set(int output, Form form);
  void set_all(Form form);
  /// The output has the rows of `rows`, in whichever dimension its shape has them.
  bool carry(int output, const Form& rows);
  /// carry() for all outputs; replicated rows make replicated outputs.
  bool carry_all(const Form& rows);
  bool fail(std::string reason);
  void rewrite(Rewrite rewrite) { treatment_.rewrite = rewrite; }

  const std::string& reason() const { return reason_; }
  const std::vector<Form>& results() const { return results_; }
  Treatment& treatment() { return treatment_; }

 private:
  const graph::Graph* graph_;
  const FormTable* table_;
  plan::BatchNormMode batch_norm_;
  const graph::Op* op_;
  std::vector<Operand> operands_;
  std::vector<Form> results_;
  Treatment treatment_;
  std::string reason_;
};

using Rule = bool (*)(RuleCall& call);
struct NamedRule {
  std::string_view name;  ///< without overload: "aten::mm"
  Rule rule;
};

inline constexpr Form kReplicatedForm{};
inline constexpr Form kPartialForm{FormKind::kPartial};

/// The table, in parts: operators that work element by element; that move or reduce elements; that
/// belong to networks (products, norms, losses, ...).
std::span<const NamedRule> elementwise_rules();
std::span<const NamedRule> movement_rules();
std::span<const NamedRule> network_rules();

/// Element by element over operands that numpy broadcasting aligns: the rule of most operators.
bool elementwise_rule(RuleCall& call);

/// Applies the operator's rule. Operators whose operands are all replicated need none: each device
/// computes the same.
bool apply_rule(RuleCall& call);

}  // namespace motley::synth
