#include "motley/synth/ranks/sharding_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "motley/graph/draws.h"
#include "motley/graph/graph_text.h"

namespace motley::synth {

using graph::ShardingRule;

namespace {

/// Appends an argument's text; a tensor is written as the index of its first occurrence.
void append_kind(const graph::SymbolicArgument& argument, std::vector<ValueId>& operands,
                 std::string& text) {
  if (const auto* list = std::get_if<graph::SymbolicArguments>(&argument.value)) {
    text += '[';
    for (const graph::SymbolicArgument& each : *list) append_kind(each, operands, text);
    text += ']';
  } else if (const auto* id = std::get_if<ValueId>(&argument.value)) {
    const auto first = std::find(operands.begin(), operands.end(), *id);
    text += fmt::format("%{} ", first - operands.begin());
    operands.push_back(*id);
  } else {
    text += print_argument(argument) + ' ';
  }
}

/// Returns a key of what an operator's rule depends on. Operators of equal layers differ only in
/// tensor names, and share their rules. Empty if the producers of the operands matter too.
std::string kind_of(const graph::Graph& graph, const graph::Op& op) {
  if (op.name.starts_with("aten::index") || op.name.starts_with("aten::_unsafe_index")) return {};
  std::string text = op.full_name() + ' ';
  std::vector<ValueId> values;
  // Draws differ only in their number, which is the last argument.
  const std::size_t count = op.arguments.size() - (graph::is_draw(op) ? 1 : 0);
  for (std::size_t i = 0; i < count; ++i) append_kind(op.arguments[i], values, text);
  values.insert(values.end(), op.outputs.begin(), op.outputs.end());
  for (const ValueId each : values) {
    text += dtype_name(graph.value(each).dtype);
    for (const graph::SizeExpr& size : graph.value(each).shape) text += ',' + size.text();
    text += ' ';
  }
  return text;
}

}  // namespace

std::vector<ShardingRule> find_rules(const graph::Graph& graph, std::int64_t batch,
                                     plan::BatchNormMode batch_norm) {
  const graph::Sizes sizes{{"batch", batch}};
  const auto statistics = batch_norm == plan::BatchNormMode::kLocal ? graph::Statistics::kOwn
                                                                    : graph::Statistics::kOfAll;
  std::vector<ShardingRule> rules;
  rules.reserve(graph.ops.size());
  std::unordered_map<std::string, std::size_t> known;  // by kind: its first operator
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id(i);
    const std::string kind = kind_of(graph, graph.ops[i]);
    const auto like = kind.empty() ? known.end() : known.try_emplace(kind, i).first;
    if (like == known.end() || like->second == i) {
      rules.push_back(graph::find_rule_or_whole(graph, id, sizes, statistics));
      continue;
    }
    rules.push_back(rule_like(rules[like->second], graph.ops[i]));
  }
  return rules;
}

std::vector<ShardingRule> find_rules_of(const graph::Graph& graph, const Sharding& sharding,
                                        plan::BatchNormMode batch_norm) {
  if (sharding.devices.size() > 1) return find_rules(graph, sharding.batch, batch_norm);
  std::vector<ShardingRule> rules;
  rules.reserve(graph.ops.size());
  for (const graph::Op& op : graph.ops) rules.push_back(graph::rule_alone(op));
  return rules;
}

ShardingRule rule_like(ShardingRule rule, const graph::Op& op) {
  rule.operands.clear();
  graph::for_each_value(op.arguments, [&](ValueId operand) { rule.operands.push_back(operand); });
  return rule;
}

graph::Form input_form(const graph::Graph& graph, ValueId input, std::int64_t batch) {
  const std::vector<graph::SizeExpr>& shape = graph.value(input).shape;
  if (shape.empty() || !shape[0].depends_on("batch")) return graph::kWholeForm;
  return {graph::FormKind::kSharded, 0, 1, batch, 1};
}

}  // namespace motley::synth
