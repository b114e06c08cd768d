// Rules of operators that work element by element, and of those that keep sums over devices apart
// because they are linear.

#include <algorithm>

#include "motley/base/dtype.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/synth/rules.h"

namespace motley::synth {

bool elementwise_rule(RuleCall& call) {
  call.sum_all();
  const auto rows = call.merge();
  return rows && call.carry_all(*rows);
}

namespace {

bool is_partial(const Operand& operand) { return operand.form.kind == FormKind::kPartial; }

/// Linear in its first operand; the others, if any, are factors.
bool linear_rule(RuleCall& call) {
  for (Operand& operand : call.operands())
    if (operand.position != 0) call.sum(operand);
  const bool with_samples =
      std::any_of(call.operands().begin(), call.operands().end(),
                  [](const Operand& operand) { return operand.form.kind == FormKind::kSharded; });
  if (call.form(0).kind != FormKind::kPartial || with_samples) return elementwise_rule(call);
  call.set_all(kPartialForm);
  return true;
}

/// a + alpha*b: partial if both are.
bool add_rule(RuleCall& call) {
  const bool both = call.operands().size() == 2 &&
                    std::all_of(call.operands().begin(), call.operands().end(), is_partial);
  if (!both) return elementwise_rule(call);
  call.set_all(kPartialForm);
  return true;
}

/// a * b: partial if one is and the other is replicated, or a number.
bool multiply_rule(RuleCall& call) {
  std::vector<Operand>& operands = call.operands();
  const bool square = operands.size() == 2 && operands[0].id == operands[1].id;
  const auto partial = std::find_if(operands.begin(), operands.end(), is_partial);
  if (square || partial == operands.end()) return elementwise_rule(call);
  for (Operand& operand : operands) {
    if (operand.form.kind == FormKind::kSharded) return elementwise_rule(call);
    if (operand.id != partial->id) call.sum(operand);
  }
  call.set_all(kPartialForm);
  return true;
}

/// a / b: partial in the numerator.
bool divide_rule(RuleCall& call) {
  const bool rounds = call.op().overload.find("mode") != std::string::npos;
  return rounds ? elementwise_rule(call) : linear_rule(call);
}

/// A change of dtype keeps partial sums where it loses no digits; row numbers stay row numbers.
bool convert_rule(RuleCall& call) {
  if (call.form(0).kind == FormKind::kPosition) {
    if (is_floating(call.graph().value(call.output(0)).dtype))
      return call.fail("it uses row numbers of the batch other than as an index");
    call.set_all(call.form(0));
    return true;
  }
  const DType from = call.graph().value(call.operands()[0].id).dtype;
  const DType to = call.graph().value(call.output(0)).dtype;
  const bool widens = dtype_size(to) >= dtype_size(from) || !is_floating(from);
  return is_floating(to) && widens ? linear_rule(call) : elementwise_rule(call);
}

/// A tensor of the operand's shape; what the operand holds does not matter.
bool like_rule(RuleCall& call) {
  if (call.form(0).kind == FormKind::kPartial) {
    call.set_all(kReplicatedForm);
    return true;
  }
  Form rows = call.form(0);
  rows.uniform = true;
  return call.carry_all(rows);
}

constexpr NamedRule kRules[] = {
    {"aten::clone", linear_rule},      {"aten::neg", linear_rule},
    {"aten::contiguous", linear_rule}, {"aten::_to_copy", convert_rule},
    {"aten::add", add_rule},           {"aten::sub", add_rule},
    {"aten::mul", multiply_rule},      {"aten::div", divide_rule},
    {"aten::full_like", like_rule},    {"aten::zeros_like", like_rule},
    {"aten::ones_like", like_rule},    {"aten::empty_like", like_rule},
};

}  // namespace

std::span<const NamedRule> elementwise_rules() {
  static const std::vector<NamedRule> rules = [] {
    std::vector<NamedRule> all(std::begin(kRules), std::end(kRules));
    const std::size_t special = all.size();
    for (const std::string_view name : graph::elementwise_names())
      if (std::none_of(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(special),
                       [&](const NamedRule& rule) { return rule.name == name; }))
        all.push_back({name, elementwise_rule});
    return all;
  }();
  return rules;
}

}  // namespace motley::synth
