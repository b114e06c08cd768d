#include "motley/synth/stages/stage_sharding.h"

#include <fmt/format.h>

#include <utility>

#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Strategy;

/// The dimension along which a whole value is cut for several readers; whole: none is long enough.
Form cut_for(const graph::Value& value, std::size_t readers) {
  if (readers == 1) return graph::kWholeForm;
  for (std::size_t d = 0; d < value.shape.size(); ++d) {
    const std::int64_t size = value.shape[d].evaluate_integer({});
    if (size >= static_cast<std::int64_t>(readers))
      return {FormKind::kSharded, static_cast<int>(d), 1, size, 1};
  }
  return graph::kWholeForm;
}

class StageSharder {
 public:
  StageSharder(const graph::Graph& model, const StagedStep& step) : model_(model), step_(step) {}

  Result<std::vector<StageSharding>> run() {
    for (const StageGraph& stage : step_.stages) {
      StageSharding& made = made_.emplace_back();
      made.sharding.shares = stage.region->shares;
      made.sharding.devices.resize(stage.ranks.size());
      made.sharding.exchanges = stage.region->exchanges;
    }
    for (std::size_t s = 0; s < made_.size(); ++s)
      if (step_.stages[s].ranks.size() == 1)
        run_alone(s);
      else
        MOTLEY_RETURN_IF_ERROR(split_operators(s));
    find_received();
    for (std::size_t s = 0; s < made_.size(); ++s)
      if (step_.stages[s].ranks.size() > 1) MOTLEY_RETURN_IF_ERROR(settle(s));
    return std::move(made_);
  }

 private:
  void run_alone(std::size_t s) {
    const graph::Graph& graph = step_.stages[s].graph;
    StageSharding& made = made_[s];
    made.sharding.sources.assign(graph.values.size(), graph::kWholeForm);
    for (const graph::Op& op : graph.ops) {
      made.rules.push_back(graph::rule_alone(op));
      made.sharding.ops.push_back(whole_strategy(made.rules.back()));
    }
  }

  const std::vector<ShardingRule>& model_rules(std::int64_t batch) {
    std::vector<ShardingRule>& rules = model_rules_[batch];
    if (rules.empty()) rules = find_rules(model_, batch);
    return rules;
  }

  /// Splits of the region by operator of the model.
  Result<std::map<OpId, plan::OperatorSplit>> read_splits(const StageGraph& stage) const {
    std::vector<plan::OpRange> covers = stage.region->covers;
    if (covers.empty()) covers = {{0, static_cast<std::int64_t>(model_.ops.size())}};
    std::map<OpId, plan::OperatorSplit> splits;
    std::size_t next = 0;
    const std::vector<plan::OperatorSplit>& given = stage.region->operators;
    for (const plan::OpRange& range : covers)
      for (std::int64_t op = range.first; op < range.end && next < given.size(); ++op)
        splits[OpId(op)] = given[next++];
    const auto wanted = static_cast<std::size_t>(plan::count_operators(covers));
    if (wanted != given.size())
      return stale_plan(
          fmt::format("a region splits {} operators and covers {}", given.size(), wanted));
    return splits;
  }

  /// Copies of the model's operators; the others wait for what is received.
  Result<void> split_operators(std::size_t s) {
    const StageGraph& stage = step_.stages[s];
    StageSharding& made = made_[s];
    MOTLEY_ASSIGN(const auto splits, read_splits(stage));
    made.rules.resize(stage.graph.ops.size());
    made.sharding.ops.resize(stage.graph.ops.size());
    is_known_.emplace(s, std::vector<char>(stage.graph.ops.size(), 0));
    for (std::size_t i = 0; i < stage.graph.ops.size(); ++i) {
      const Copy& copy = stage.copies[i];
      const graph::Op& op = stage.graph.ops[i];
      if (copy.of.is_none()) continue;
      const OpId id(i);
      const std::int64_t batch =
          copy.stretch.count > 0 ? copy.stretch.count : step_.passes.stretches.front().count;
      // A mean over labels has become a sum.
      const bool is_other = op.arguments.size() != model_.op(copy.of).arguments.size() ||
                            op.overload != model_.op(copy.of).overload ||
                            (is_nll(op) && op.arguments[3] != model_.op(copy.of).arguments[3]);
      ShardingRule rule = is_other ? graph::find_rule_or_whole(stage.graph, id, {})
                                   : rule_like(model_rules(batch)[copy.of.index()], op);
      const plan::OperatorSplit& split = splits.at(copy.of);
      const auto way = find_strategy(rule, split);
      if (!way || !can_lower(stage.graph, id, rule, *way, made.sharding.shares))
        return stale_plan(fmt::format(
            "operator {}, {} in module '{}', cannot be split as '{}' for {} samples; its rule is "
            "{}",
            copy.of.value, op.full_name(), op.module, print_split(split), batch, print_rule(rule)));
      made.rules[i] = std::move(rule);
      made.sharding.ops[i] = *way;
      is_known_[s][i] = 1;
    }
    return {};
  }

  /// How a value is held that a stage makes, as far as that is known.
  Form home(std::size_t s, ValueId value) const {
    if (step_.stages[s].ranks.size() == 1) return graph::kWholeForm;
    const OpId producer = step_.stages[s].graph.value(value).producer;
    if (producer.is_none() || is_known_.at(s)[producer.index()] == 0) return graph::kWholeForm;
    const std::vector<ValueId>& outputs = step_.stages[s].graph.op(producer).outputs;
    for (std::size_t r = 0; r < outputs.size(); ++r)
      if (outputs[r] == value) return made_[s].sharding.ops[producer.index()].results[r];
    return graph::kWholeForm;
  }

  void find_received() {
    for (const BoundaryValue& boundary_value : step_.boundary_values) {
      const Form made = home(boundary_value.from, boundary_value.made);
      const graph::Value& value =
          step_.stages[boundary_value.from].graph.value(boundary_value.made);
      made_[boundary_value.to].received[boundary_value.read] =
          made.kind == FormKind::kSharded
              ? made
              : cut_for(value, step_.stages[boundary_value.to].ranks.size());
    }
  }

  /// Sources and what was added, in order.
  Result<void> settle(std::size_t s) {
    const StageGraph& stage = step_.stages[s];
    StageSharding& made = made_[s];
    made.sharding.sources.assign(stage.graph.values.size(), graph::kWholeForm);
    for (const auto& [value, form] : made.received) made.sharding.sources[value.index()] = form;
    MOTLEY_RETURN_IF_ERROR(read_kept_parameters(stage.graph, *stage.region, made.sharding));
    Held held(stage.graph.values.size());
    held.homes = made.sharding.sources;
    for (std::size_t i = 0; i < stage.graph.ops.size(); ++i) {
      const graph::Op& op = stage.graph.ops[i];
      const OpId id(i);
      if (is_known_[s][i] == 0) {
        const bool is_plain = op.name == kSumReplicas;
        made.rules[i] =
            is_plain ? graph::rule_alone(op) : graph::find_rule_or_whole(stage.graph, id, {});
        made.sharding.ops[i] =
            is_plain ? whole_strategy(made.rules[i])
                     : best_strategy(stage.graph, id, made.rules[i], held, made.sharding.shares);
      }
      held.add(op, made.rules[i], made.sharding.ops[i]);
    }
    return {};
  }

  const graph::Graph& model_;
  const StagedStep& step_;
  std::vector<StageSharding> made_;
  std::map<std::int64_t, std::vector<ShardingRule>> model_rules_;  // by batch
  std::map<std::size_t, std::vector<char>> is_known_;              // by stage, operator
};

}  // namespace

Result<std::vector<StageSharding>> find_stage_shardings(const graph::Graph& model,
                                                        const StagedStep& step) {
  return StageSharder(model, step).run();
}

}  // namespace motley::synth
