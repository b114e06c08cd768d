#include "motley/synth/ranks/sample_sharding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "motley/synth/ranks/lower_sharded.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Strategy;

/// Counts conversions of a strategy; those that move samples between devices cost most.
int cost_of(const ShardingRule& rule, const Held& held, const Strategy& strategy) {
  int total = 0;
  for (std::size_t o = 0; o < strategy.operands.size(); ++o) {
    const std::size_t value = rule.operands[o].index();
    const Form &from = held.homes[value], &to = strategy.operands[o];
    if (is_same(from, to, held.identical[value]) || is_ignored(rule, o)) continue;
    total += from.kind == FormKind::kSharded ? 10000 : from.kind == FormKind::kPartial ? 100 : 1;
    if (to.kind == FormKind::kPartial) ++total;  // a gathered operand may as well stay whole
  }
  return total;
}

class Spreader {
 public:
  Spreader(const graph::Graph& graph, const std::vector<ShardingRule>& rules,
           RepeatedTerms repeated, Sharding& sharding)
      : graph_(graph),
        sharding_(sharding),
        rules_(rules),
        repeated_(repeated),
        held_(graph.values.size()) {}

  void spread() {
    for (std::size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].role == graph::ValueRole::kInput)
        held_.homes[v] = input_form(graph_, ValueId(v), sharding_.batch);
    sharding_.sources = held_.homes;
    sharding_.ops.clear();
    sharding_.ops.reserve(graph_.ops.size());
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      const Strategy& chosen = sharding_.ops.emplace_back(choose(i));
      held_.add(graph_.ops[i], rules_[i], chosen);
    }
  }

 private:
  Strategy choose(std::size_t op) const {
    const OpId id(op);
    const ShardingRule& rule = rules_[op];
    bool is_spread = false;
    for (std::size_t o = 0; o < rule.operands.size(); ++o)
      is_spread = is_spread || (!is_ignored(rule, o) &&
                                held_.homes[rule.operands[o].index()].kind == FormKind::kSharded);
    Strategy best = best_strategy(graph_, id, rule, held_, sharding_.shares);
    if (is_spread) return best;
    const auto made = by_result(op);
    if (!made || !can_lower(graph_, id, rule, *made, sharding_.shares)) return best;
    const bool repeats_terms =
        repeated_ == RepeatedTerms::kSummed && best.results[0] == graph::kPartialForm;
    const bool is_better =
        repeats_terms || cost_of(rule, held_, *made) <= cost_of(rule, held_, best);
    return is_better ? *made : best;
  }

  /// Splits an operator that creates values for each sample without reading any.
  std::optional<Strategy> by_result(std::size_t op) const {
    const std::vector<graph::SizeExpr>& shape = graph_.value(graph_.ops[op].outputs[0]).shape;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const graph::DimFactors& factors = rules_[op].result_factors[0][d];
      if (!shape[d].depends_on("batch") || factors.empty()) continue;
      const std::int64_t size = rules_[op].factors[static_cast<std::size_t>(factors[0])].size;
      if (size % sharding_.batch == 0)
        return split_strategy(rules_[op], factors[0], 1, size / sharding_.batch);
    }
    return std::nullopt;
  }

  const graph::Graph& graph_;
  Sharding& sharding_;
  const std::vector<ShardingRule>& rules_;
  const RepeatedTerms repeated_;
  Held held_;
};

}  // namespace

Strategy best_strategy(const graph::Graph& graph, OpId op, const ShardingRule& rule,
                       const Held& held, const std::vector<double>& shares) {
  Strategy best = whole_strategy(rule);
  if (cost_of(rule, held, best) == 0) return best;
  std::optional<int> least;
  const auto offer = [&](const std::optional<Strategy>& strategy) {
    if (!strategy) return;
    const int found = cost_of(rule, held, *strategy);
    if ((least && found >= *least) || !can_lower(graph, op, rule, *strategy, shares)) return;
    least = found;
    best = *strategy;
  };
  for (std::size_t o = 0; o < rule.operands.size() && least != 0; ++o)
    offer(follow(rule, static_cast<int>(o), held.homes[rule.operands[o].index()]));
  if (least == 0) return best;
  for (const Strategy& way : linear_strategies(rule)) offer(way);
  offer(whole_strategy(rule));
  return best;
}

void spread_samples_by(const graph::Graph& graph, const std::vector<ShardingRule>& rules,
                       RepeatedTerms repeated, Sharding& sharding) {
  Spreader(graph, rules, repeated, sharding).spread();
}

std::vector<ShardingRule> spread_samples(const graph::Graph& graph, Sharding& sharding,
                                         plan::BatchNormMode batch_norm) {
  std::vector<ShardingRule> rules = find_rules_of(graph, sharding, batch_norm);
  if (sharding.devices.size() > 1) {
    spread_samples_by(graph, rules, RepeatedTerms::kSummed, sharding);
    return rules;
  }
  sharding.sources.assign(graph.values.size(), graph::kWholeForm);
  sharding.ops.clear();
  for (const ShardingRule& rule : rules) sharding.ops.push_back(whole_strategy(rule));
  return rules;
}

void keep_parameters_in_parts(const graph::Graph& graph, Sharding& sharding) {
  const auto devices = static_cast<std::int64_t>(sharding.devices.size());
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const graph::Value& value = graph.values[v];
    if (value.role != graph::ValueRole::kParameter) continue;
    for (std::size_t d = 0; d < value.shape.size(); ++d) {
      const std::int64_t size = value.shape[d].evaluate_integer({});
      if (size < devices) continue;
      sharding.sources[v] = {FormKind::kSharded, static_cast<int>(d), 1, size, 1};
      break;
    }
  }
}

}  // namespace motley::synth
