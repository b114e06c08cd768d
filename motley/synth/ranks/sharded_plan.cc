#include "motley/synth/ranks/sharded_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "motley/base/check.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/ranks/sample_sharding.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Strategy;
using plan::OperatorSplit;

OperatorSplit describe(const Strategy& strategy) {
  OperatorSplit split{.factor = strategy.factor, .outer = strategy.outer, .inner = strategy.inner};
  if (strategy.factor >= 0) return split;
  for (std::size_t o = 0; o < strategy.operands.size(); ++o)
    if (strategy.operands[o].kind == FormKind::kPartial)
      split.partial.push_back(static_cast<int>(o));
  return split;
}

}  // namespace

std::optional<Strategy> find_strategy(const ShardingRule& rule, const OperatorSplit& split) {
  if (split.factor >= static_cast<int>(rule.factors.size())) return std::nullopt;
  if (split.factor >= 0) {
    // Prevents overflow of their product.
    const std::int64_t size = rule.factors[static_cast<std::size_t>(split.factor)].size;
    if (split.outer > size || split.inner > size) return std::nullopt;
    return split_strategy(rule, split.factor, split.outer, split.inner);
  }
  if (split.partial.empty()) return whole_strategy(rule);
  for (Strategy& way : linear_strategies(rule))
    if (describe(way) == split) return std::move(way);
  return std::nullopt;
}

tl::unexpected<Error> stale_plan(const std::string& what) {
  return stale_error("plan.stale", "plan: " + what + "; plan again");
}

namespace {

/// Can a tensor of this shape be cut so?
bool is_cut_of(const graph::Value& value, const Form& form) {
  if (form.dim >= static_cast<int>(value.shape.size())) return false;
  const std::int64_t size = value.shape[static_cast<std::size_t>(form.dim)].evaluate_integer({});
  return form.outer <= size && form.inner <= size && form.extent <= size &&
         size % (form.outer * form.inner) == 0 && size / (form.outer * form.inner) == form.extent;
}

Result<void> read_sources(const graph::Graph& graph, const plan::Region& region,
                          Sharding& sharding) {
  sharding.sources.assign(graph.values.size(), graph::kWholeForm);
  for (const ValueId input : values_with_role(graph, graph::ValueRole::kInput))
    sharding.sources[input.index()] = input_form(graph, input, sharding.batch);
  MOTLEY_ASSIGN(const std::set<std::string> known, read_kept_parameters(graph, region, sharding));
  for (const plan::KeptParameter& kept : region.parameters)
    if (!known.contains(kept.name))
      return stale_plan(fmt::format("the model has no parameter '{}'", kept.name));
  return {};
}

}  // namespace

Result<std::set<std::string>> read_kept_parameters(const graph::Graph& graph,
                                                   const plan::Region& region, Sharding& sharding) {
  std::map<std::string, const plan::KeptParameter*> kept;
  for (const plan::KeptParameter& each : region.parameters) kept.emplace(each.name, &each);
  std::set<std::string> known;
  // A parameter that is gathered again occurs several times.
  for (const ValueId id : values_with_role(graph, graph::ValueRole::kParameter)) {
    const auto found = kept.find(graph.value(id).name);
    if (found == kept.end()) continue;
    const auto& [name, form, is_gathered_again] = *found->second;
    if (!is_cut_of(graph.value(id), form))
      return stale_plan(fmt::format("parameter '{}' cannot be cut as {}", name, print_form(form)));
    sharding.sources[id.index()] = form;
    if (is_gathered_again) sharding.gathered_again.insert(id);
    known.insert(name);
  }
  return known;
}

plan::Region make_region(const graph::Graph& graph, const Sharding& sharding,
                         const cluster::Cluster& cluster) {
  MOTLEY_CHECK(sharding.ops.size() == graph.ops.size() &&
               sharding.sources.size() == graph.values.size());
  plan::Region region;
  for (const std::string& name : sharding.devices) {
    const auto device = cluster::find_device(cluster, name);
    MOTLEY_CHECK(device.has_value());
    region.devices.push_back(*device);
  }
  region.shares = sharding.shares;
  for (const Strategy& strategy : sharding.ops) region.operators.push_back(describe(strategy));
  for (const ValueId id : values_with_role(graph, graph::ValueRole::kParameter))
    if (sharding.sources[id.index()].kind == FormKind::kSharded)
      region.parameters.push_back({graph.value(id).name, sharding.sources[id.index()],
                                   sharding.gathered_again.contains(id)});
  region.exchanges = sharding.exchanges;
  region.recomputes = sharding.recomputes;
  return region;
}

namespace {

Result<RuledSharding> read_region(const graph::Graph& graph, const plan::Region& region,
                                  RuledSharding found) {
  Sharding& sharding = found.sharding;
  if (region.operators.size() != graph.ops.size())
    return stale_plan(fmt::format("it splits {} operators, the model has {}",
                                  region.operators.size(), graph.ops.size()));
  sharding.shares = region.shares;
  sharding.exchanges = region.exchanges;
  MOTLEY_RETURN_IF_ERROR(read_sources(graph, region, sharding));
  found.rules = find_rules(graph, sharding.batch);
  for (std::size_t i = 0; i < found.rules.size(); ++i) {
    const OpId id(i);
    const ShardingRule& rule = found.rules[i];
    const auto strategy = find_strategy(rule, region.operators[i]);
    if (!strategy || !can_lower(graph, id, rule, *strategy, sharding.shares))
      return stale_plan(
          fmt::format("operator {}, {} in module '{}', cannot be split as '{}'; its rule "
                      "is {}",
                      i, graph.ops[i].full_name(), graph.ops[i].module,
                      print_split(region.operators[i]), print_rule(rule)));
    sharding.ops.push_back(*strategy);
  }
  return found;
}

}  // namespace

Result<void> check_recomputed(const graph::Graph& graph, const plan::Plan& plan) {
  const auto operators = static_cast<std::int64_t>(graph.ops.size());
  for (const plan::Replica& replica : plan.replicas)
    for (const plan::Region& region : replica.regions)
      for (const plan::OpRange& range : region.recomputes)
        if (range.end > operators)
          return stale_plan(fmt::format("operator {} is to be done again, the model has {}",
                                        range.end - 1, operators));
  return {};
}

Result<RuledSharding> find_ruled_sharding(const graph::Graph& graph, const plan::Plan& plan,
                                          const cluster::Cluster& cluster) {
  MOTLEY_RETURN_IF_ERROR(check_recomputed(graph, plan));
  RuledSharding found;
  Sharding& sharding = found.sharding;
  sharding.micro_batches = plan.replicas.front().micro_batches;
  sharding.batch = plan.global_batch / sharding.micro_batches;
  sharding.turns = plan.replicas.front().turns;
  for (const plan::Member& member : plan::members(plan)) {
    sharding.devices.push_back(cluster.device(member.device).name);
    sharding.shares.push_back(static_cast<double>(member.samples));
  }
  const plan::Region& first = plan.replicas.front().regions.front();
  sharding.recomputes = first.recomputes;
  if (first.devices.size() > 1) return read_region(graph, first, std::move(found));
  found.rules = spread_samples(graph, sharding, plan.batch_norm);
  return found;
}

Result<Sharding> find_sharding(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster) {
  MOTLEY_ASSIGN(RuledSharding found, find_ruled_sharding(graph, plan, cluster));
  return std::move(found.sharding);
}

}  // namespace motley::synth
