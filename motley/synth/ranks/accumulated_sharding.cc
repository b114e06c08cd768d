#include <utility>

#include "motley/base/check.h"
#include "motley/synth/ranks/accumulation.h"
#include "motley/synth/ranks/pass_values.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::synth {

using graph::Form;
using graph::FormKind;
using graph::Graph;
using graph::ShardingRule;
using graph::Strategy;

namespace {

/// The strategy of the operator's copy that sums where the operator takes a mean.
Strategy like_strategy(const ShardingRule& rule, const Strategy& model) {
  if (model.factor >= 0) {
    auto split = split_strategy(rule, model.factor, model.outer, model.inner);
    MOTLEY_CHECK(split.has_value());
    return std::move(*split);
  }
  for (Strategy& way : linear_strategies(rule))
    if (way.operands == model.operands) return std::move(way);
  return whole_strategy(rule);
}

}  // namespace

AccumulatedSharding spread_accumulation(const Accumulation& accumulation, const Graph& graph,
                                        const Sharding& sharding,
                                        const std::vector<ShardingRule>& rules) {
  const Graph& made = accumulation.graph;
  AccumulatedSharding spread{{.devices = sharding.devices,
                              .shares = sharding.shares,
                              .batch = sharding.batch,
                              .turns = sharding.turns,
                              .exchanges = sharding.exchanges},
                             {}};
  Held held(made.values.size());
  std::vector<Form>& homes = held.homes;
  std::size_t source = 0;  // sources of both graphs are in the same order
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    if (!graph.values[v].producer.is_none()) continue;
    Form form = sharding.sources[v];
    if (graph.values[v].role == graph::ValueRole::kInput && form.kind == FormKind::kSharded)
      form.outer *= accumulation.micro_batches;
    homes[source++] = form;
  }
  for (const auto& [again, parameter] : accumulation.again) {
    homes[again.index()] = homes[parameter.index()];
    spread.sharding.gathered_again.insert(again);
  }
  spread.sharding.sources = homes;
  const graph::Sizes sizes{{std::string(kBatch), sharding.batch}};
  for (std::size_t i = 0; i < made.ops.size(); ++i) {
    const OpId id(i);
    const OpId of = accumulation.copies[i].of;
    ShardingRule& rule = spread.rules.emplace_back();
    Strategy& way = spread.sharding.ops.emplace_back();
    const bool is_as_it_was =
        !of.is_none() && (!is_mean_loss(graph.op(of)) || is_mean_loss(made.ops[i]));
    if (is_as_it_was) {
      rule = rule_like(rules[of.index()], made.ops[i]);
      way = sharding.ops[of.index()];
    } else {
      rule = find_rule_or_whole(made, id, sizes);
      way = of.is_none() ? best_strategy(made, id, rule, held, sharding.shares)
                         : like_strategy(rule, sharding.ops[of.index()]);
    }
    for (std::size_t r = 0; r < way.results.size(); ++r)
      homes[made.ops[i].outputs[r].index()] = way.results[r];
  }
  return spread;
}

}  // namespace motley::synth
