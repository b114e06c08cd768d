#include "motley/synth/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "motley/graph/work.h"

namespace motley::synth {
namespace {

void collect_operands(const graph::ArgumentList& arguments, const FormTable& table,
                      std::vector<Operand>& operands) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto add = [&](ValueId id) {
      operands.push_back({id, table.values[id.index()], static_cast<int>(i)});
    };
    if (const auto* id = std::get_if<ValueId>(&arguments[i].value)) add(*id);
    if (const auto* list = std::get_if<graph::ArgumentList>(&arguments[i].value))
      graph::for_each_value(*list, add);
  }
}

std::optional<std::int64_t> find_plain_integer(const graph::Argument& argument) {
  if (const auto* value = std::get_if<std::int64_t>(&argument.value)) return *value;
  return std::nullopt;
}

}  // namespace

RuleCall::RuleCall(const graph::Graph& graph, const FormTable& table,
                   plan::BatchNormMode batch_norm, OpId op)
    : graph_(&graph), table_(&table), batch_norm_(batch_norm), op_(&graph.op(op)) {
  collect_operands(op_->arguments, table, operands_);
  results_.resize(op_->outputs.size());
}

Operand* RuleCall::operand(int position) {
  for (Operand& operand : operands_)
    if (operand.position == position) return &operand;
  return nullptr;
}

Form RuleCall::form(int position) {
  const Operand* found = operand(position);
  return found == nullptr ? kReplicatedForm : found->form;
}

const graph::Argument& RuleCall::argument(int position) const {
  static const graph::Argument none{graph::NoneArgument{}};
  const auto index = static_cast<std::size_t>(position);
  return index < op_->arguments.size() ? op_->arguments[index] : none;
}

std::optional<std::int64_t> RuleCall::integer(int position) const {
  return find_plain_integer(argument(position));
}

bool RuleCall::truth(int position) const {
  const auto* value = std::get_if<bool>(&argument(position).value);
  return value != nullptr && *value;
}

std::vector<int> RuleCall::dims(int position, int rank) const {
  std::vector<int> dims;
  const auto add = [&](std::int64_t dim) {
    dims.push_back(static_cast<int>(dim < 0 ? dim + rank : dim));
  };
  const graph::Argument& given = argument(position);
  if (const auto* list = std::get_if<graph::ArgumentList>(&given.value)) {
    for (const graph::Argument& element : *list)
      if (const auto dim = find_plain_integer(element)) add(*dim);
  } else if (const auto dim = find_plain_integer(given)) {
    add(*dim);
  }
  if (dims.empty())
    for (int d = 0; d < rank; ++d) dims.push_back(d);
  return dims;
}

int RuleCall::rank(ValueId value) const {
  return static_cast<int>(graph_->value(value).shape.size());
}

std::int64_t RuleCall::extent(ValueId value, int dim) const {
  return graph_->value(value).shape[static_cast<std::size_t>(dim)].evaluate_integer({});
}

void RuleCall::sum(Operand& operand) {
  if (operand.form.kind != FormKind::kPartial) return;
  std::vector<ValueId>& summed = treatment_.summed;
  if (std::find(summed.begin(), summed.end(), operand.id) == summed.end())
    summed.push_back(operand.id);
  for (Operand& other : operands_)
    if (other.id == operand.id) other.form = kReplicatedForm;
}

void RuleCall::sum_all() {
  for (Operand& operand : operands_) sum(operand);
}

std::optional<Form> RuleCall::merge() {
  std::optional<Form> merged;
  int merged_from_right = 0;
  for (const Operand& operand : operands_) {
    if (operand.form.kind != FormKind::kSharded) continue;
    const Form& form = operand.form;
    const int from_right = rank(operand.id) - form.dim;
    if (!merged || merged->uniform) {
      if (merged && (merged_from_right != from_right ||
                     merged->outer * merged->inner != form.outer * form.inner)) {
        fail("its operands hold the batch in different dimensions");
        return std::nullopt;
      }
      merged = form;
      merged_from_right = from_right;
      continue;
    }
    const bool same_rows = form.outer == merged->outer && form.inner == merged->inner;
    const bool fits = form.uniform && form.outer * form.inner == merged->outer * merged->inner;
    if (merged_from_right != from_right || !(same_rows || fits)) {
      fail("its operands hold the batch in different dimensions or orders");
      return std::nullopt;
    }
  }
  return merged.value_or(kReplicatedForm);
}

void RuleCall::set(int output, Form form) { results_[static_cast<std::size_t>(output)] = form; }

void RuleCall::set_all(Form form) { std::fill(results_.begin(), results_.end(), form); }

bool RuleCall::carry(int output, const Form& rows) {
  const BatchAxis& found = axis(this->output(output));
  if (graph_->value(this->output(output)).dtype == DType::kNone) return true;
  if (found.dim < 0 || found.irregular || found.factor != rows.outer * rows.inner)
    return fail("its result does not hold the samples of its operands");
  set(output, Form{FormKind::kSharded, found.dim, rows.outer, rows.inner, rows.uniform});
  return true;
}

bool RuleCall::carry_all(const Form& rows) {
  if (rows.kind == FormKind::kReplicated) {
    set_all(kReplicatedForm);
    return true;
  }
  for (int o = 0; o < output_count(); ++o)
    if (!carry(o, rows)) return false;
  return true;
}

bool RuleCall::fail(std::string reason) {
  reason_ = std::move(reason);
  return false;
}

namespace {

const std::unordered_map<std::string_view, Rule>& rule_table() {
  static const std::unordered_map<std::string_view, Rule> table = [] {
    std::unordered_map<std::string_view, Rule> rules;
    for (const auto part : {elementwise_rules(), movement_rules(), network_rules()})
      for (const NamedRule& named : part) rules.emplace(named.name, named.rule);
    return rules;
  }();
  return table;
}

bool is_counting(const RuleCall& call) {
  const std::string& overload = call.op().overload;
  const auto zero = [&](int position) { return call.integer(position) == 0; };
  const auto one = [&](int position) { return call.integer(position) == 1; };
  if (overload.empty()) return true;
  if (overload == "start") return zero(0);
  return overload == "start_step" && zero(0) && one(2);
}

/// Operators that make rows out of nothing, or out of one replicated row: all rows are equal.
bool makes_equal_rows(std::string_view name) {
  static constexpr std::string_view kNames[] = {"aten::full",
                                                "aten::zeros",
                                                "aten::ones",
                                                "aten::empty",
                                                "aten::new_zeros",
                                                "aten::new_full",
                                                "aten::new_empty",
                                                "aten::new_ones",
                                                "aten::expand",
                                                "aten::repeat",
                                                "aten::new_empty_strided",
                                                "aten::empty_strided",
                                                "aten::scalar_tensor"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

/// All operands are replicated.
bool apply_replicated(RuleCall& call) {
  for (int o = 0; o < call.output_count(); ++o) {
    const BatchAxis& axis = call.axis(call.output(o));
    if (axis.dim < 0) continue;
    if (axis.irregular) return call.fail("its size is not a multiple of the batch");
    const Form rows{FormKind::kSharded, axis.dim, 1, axis.factor, true};
    if (makes_equal_rows(call.op().name)) {
      call.set(o, rows);
    } else if (call.op().name == "aten::arange" && is_counting(call)) {
      call.set(o, Form{FormKind::kPosition, axis.dim, 1, axis.factor});
    } else {
      return call.fail("it has no rule for a batch that comes from no operand");
    }
  }
  return true;
}

}  // namespace

bool apply_rule(RuleCall& call) {
  const std::string& name = call.op().name;
  const auto found = rule_table().find(name);
  const bool is_dropout = name == "aten::native_dropout";
  if (graph::is_random(name) && !is_dropout && name != "motley::attention" &&
      name != "motley::attention_backward")
    return call.fail("it draws random numbers that would differ from one device's");
  const bool replicated = std::all_of(
      call.operands().begin(), call.operands().end(),
      [](const Operand& operand) { return operand.form.kind == FormKind::kReplicated; });
  if (replicated && !is_dropout) return apply_replicated(call);
  if (found == rule_table().end()) return call.fail("it has no rule");
  for (const Operand& operand : call.operands()) {
    if (operand.form.kind == FormKind::kOwn && name != "aten::native_batch_norm_backward" &&
        name != "aten::batch_norm_backward")
      return call.fail("it uses statistics of each device's own samples (local batch norm)");
    if (operand.form.kind == FormKind::kPosition && name != "aten::index" &&
        name != "aten::index_put" && name != "aten::view" && name != "aten::unsqueeze" &&
        name != "aten::_to_copy")
      return call.fail("it uses row numbers of the batch other than as an index");
  }
  return found->second(call);
}

}  // namespace motley::synth
