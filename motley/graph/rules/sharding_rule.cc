#include "motley/graph/rules/sharding_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "motley/graph/rules/rule_builder.h"

namespace motley::graph {
namespace {

const std::unordered_map<std::string_view, RuleMaker>& rule_table() {
  static const std::unordered_map<std::string_view, RuleMaker> table = [] {
    std::unordered_map<std::string_view, RuleMaker> rules;
    for (const auto part : {movement_rules(), network_rules(), lookup_rules()})
      for (const NamedRuleMaker& named : part) rules.emplace(named.name, named.make);
    return rules;
  }();
  return table;
}

std::string print_dim(const ShardingRule& rule, const DimFactors& dim) {
  if (dim.empty()) return "1";
  std::string text;
  for (const int id : dim) {
    if (!text.empty()) text += '*';
    text += id < 26 ? std::string(1, static_cast<char>('a' + id)) : fmt::format("f{}", id);
    switch (rule.factors[static_cast<std::size_t>(id)].split) {
      case Split::kNever:
        text += '!';
        break;
      case Split::kMean:
        text += '~';
        break;
      case Split::kRewritten:
        text += '^';
        break;
      case Split::kPlain:
        break;
    }
  }
  return text;
}

std::string print_tensor(const ShardingRule& rule, const TensorFactors& tensor) {
  std::string text = "(";
  for (std::size_t d = 0; d < tensor.size(); ++d) {
    if (d > 0) text += ' ';
    text += print_dim(rule, tensor[d]);
  }
  return text + ")";
}

}  // namespace

bool has_factor(const TensorFactors& tensor, int factor) {
  return std::any_of(tensor.begin(), tensor.end(), [&](const DimFactors& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

std::optional<ShardingRule> find_rule(const Graph& graph, OpId op, const Sizes& sizes,
                                      Statistics statistics) {
  const std::string& name = graph.op(op).name;
  RuleBuilder rule(graph, op, sizes, statistics);
  if (const auto found = rule_table().find(name); found != rule_table().end())
    return found->second(rule) ? rule.finish() : std::nullopt;
  if (!is_elementwise(name) || !elementwise_rule(rule)) return std::nullopt;
  return rule.finish();
}

ShardingRule find_rule_or_whole(const Graph& graph, OpId op, const Sizes& sizes,
                                Statistics statistics) {
  if (auto found = find_rule(graph, op, sizes, statistics)) return *std::move(found);
  RuleBuilder rule(graph, op, sizes);
  rule.set_all([&](const Shape& shape) { return rule.add_factors(shape, Split::kNever); });
  return *rule.finish();
}

ShardingRule rule_alone(const Op& op) {
  ShardingRule rule;
  for_each_value(op.arguments, [&](ValueId operand) { rule.operands.push_back(operand); });
  rule.operand_factors.resize(rule.operands.size());
  rule.result_factors.resize(op.outputs.size());
  return rule;
}

namespace {

bool is_identical_along(const ShardingRule& rule, int factor,
                        const std::vector<IdenticalDims>& values) {
  const Factor& about = rule.factors[static_cast<std::size_t>(factor)];
  if (about.size == 1) return true;
  if (about.split != Split::kPlain && about.split != Split::kMean) return false;
  for (std::size_t o = 0; o < rule.operands.size(); ++o)
    for (std::size_t d = 0; d < rule.operand_factors[o].size(); ++d) {
      const DimFactors& dim = rule.operand_factors[o][d];
      const bool is_identical = d < 64 && (values[rule.operands[o].index()] >> d & 1) != 0;
      if (!is_identical && std::find(dim.begin(), dim.end(), factor) != dim.end()) return false;
    }
  return true;
}

}  // namespace

std::vector<IdenticalDims> identical_results(const ShardingRule& rule,
                                             const std::vector<IdenticalDims>& values) {
  std::vector<IdenticalDims> results(rule.result_factors.size(), 0);
  for (std::size_t r = 0; r < results.size(); ++r)
    for (std::size_t d = 0; d < rule.result_factors[r].size() && d < 64; ++d) {
      const DimFactors& dim = rule.result_factors[r][d];
      if (std::all_of(dim.begin(), dim.end(),
                      [&](int factor) { return is_identical_along(rule, factor, values); }))
        results[r] |= IdenticalDims{1} << d;
    }
  return results;
}

std::string print_rule(const ShardingRule& rule) {
  std::string text;
  for (const TensorFactors& operand : rule.operand_factors)
    text += print_tensor(rule, operand) + ' ';
  text += "->";
  for (const TensorFactors& result : rule.result_factors) text += ' ' + print_tensor(rule, result);
  return text;
}

}  // namespace motley::graph
