#include "motley/synth/sharding_rules.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

namespace motley::synth {

using graph::ShardingRule;

namespace {

/// Operators of equal layers are alike but for the names of their tensors, and so are their rules.
class OperatorKinds {
 public:
  explicit OperatorKinds(const graph::Graph& graph) : graph_(graph) {}

  /// An operator before this one that is alike; none: there is no such one.
  OpId find_like(OpId id) {
    const graph::Op& op = graph_.op(id);
    if (op.name.starts_with("aten::index") || op.name.starts_with("aten::_unsafe_index"))
      return OpId();  // what makes their operands counts, too
    std::vector<OpId>& known = by_name_[op.name];
    for (const OpId other : known)
      if (are_alike(op, graph_.op(other))) return other;
    known.push_back(id);
    return OpId();
  }

 private:
  bool are_alike(ValueId a, ValueId b) const {
    const graph::Value &left = graph_.value(a), &right = graph_.value(b);
    return left.dtype == right.dtype && left.shape == right.shape;
  }

  bool are_alike(const graph::ArgumentList& a, const graph::ArgumentList& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const graph::Argument& left, const graph::Argument& right) {
                        const auto* one = std::get_if<ValueId>(&left.value);
                        const auto* other = std::get_if<ValueId>(&right.value);
                        if (one != nullptr && other != nullptr) return are_alike(*one, *other);
                        const auto* list = std::get_if<graph::ArgumentList>(&left.value);
                        const auto* second = std::get_if<graph::ArgumentList>(&right.value);
                        if (list != nullptr && second != nullptr) return are_alike(*list, *second);
                        return left == right;
                      });
  }

  /// Which operands are one tensor, by the first place of each.
  static std::vector<std::ptrdiff_t> repeats(const graph::Op& op) {
    std::vector<ValueId> operands;
    graph::for_each_value(op.arguments, [&](ValueId each) { operands.push_back(each); });
    std::vector<std::ptrdiff_t> first;
    for (const ValueId each : operands)
      first.push_back(std::find(operands.begin(), operands.end(), each) - operands.begin());
    return first;
  }

  bool are_alike(const graph::Op& a, const graph::Op& b) const {
    return a.overload == b.overload && are_alike(a.arguments, b.arguments) &&
           std::equal(a.outputs.begin(), a.outputs.end(), b.outputs.begin(), b.outputs.end(),
                      [&](ValueId left, ValueId right) { return are_alike(left, right); }) &&
           repeats(a) == repeats(b);
  }

  const graph::Graph& graph_;
  std::unordered_map<std::string_view, std::vector<OpId>> by_name_;
};

}  // namespace

std::vector<ShardingRule> find_rules(const graph::Graph& graph, std::int64_t batch,
                                     plan::BatchNormMode batch_norm) {
  const graph::Sizes sizes{{"batch", batch}};
  const auto statistics = batch_norm == plan::BatchNormMode::kLocal ? graph::Statistics::kOwn
                                                                    : graph::Statistics::kOfAll;
  std::vector<ShardingRule> rules;
  rules.reserve(graph.ops.size());
  OperatorKinds kinds(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id(static_cast<std::int64_t>(i));
    const OpId like = kinds.find_like(id);
    if (like.is_none()) {
      rules.push_back(graph::find_rule_or_whole(graph, id, sizes, statistics));
      continue;
    }
    ShardingRule& rule = rules.emplace_back(rules[like.index()]);
    rule.operands.clear();
    graph::for_each_value(graph.ops[i].arguments,
                          [&](ValueId operand) { rule.operands.push_back(operand); });
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

graph::Form input_form(const graph::Graph& graph, ValueId input, std::int64_t batch) {
  const std::vector<graph::SizeExpr>& shape = graph.value(input).shape;
  if (shape.empty() || !shape[0].depends_on("batch")) return graph::kWholeForm;
  return {graph::FormKind::kSharded, 0, 1, batch, 1};
}

}  // namespace motley::synth
