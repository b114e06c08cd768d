#include "motley/synth/ranks/lower_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "motley/graph/edit.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/program/parts.h"
#include "motley/synth/ranks/lower_sharded.h"

namespace motley::synth {
namespace {

using graph::Value;

/// A graph of one operator whose operands are parameters, since these may have any form.
class AloneGraph {
 public:
  AloneGraph(const graph::Graph& graph, OpId id, std::int64_t batch)
      : from_(graph), sizes_{{"batch", batch}} {
    made_.name = graph.name;
    made_.sizes = graph.sizes;
    graph::Op op = graph.op(id);
    graph::map_values(op.arguments, [&](ValueId value) { return copied(value); });
    for (ValueId& output : op.outputs) {
      output = add(graph.value(output), OpId(0));
      made_.outputs.push_back({graph::OutputKind::kLoss, output, {}, {}});
    }
    made_.ops.push_back(std::move(op));
  }

  graph::Graph take() { return std::move(made_); }

 private:
  ValueId copied(ValueId id) {
    const auto [known, is_new] = ids_.try_emplace(id, ValueId(made_.values.size()));
    if (!is_new) return known->second;
    Value value = from_.value(id);
    value.role = graph::ValueRole::kParameter;
    value.name = fmt::format("%{}", id.value);
    value.frozen = true;
    return add(std::move(value), OpId());
  }

  /// Adds a value with its shape at this batch: values exchanged together need fixed shapes.
  ValueId add(Value value, OpId producer) {
    for (graph::SizeExpr& size : value.shape) size = graph::SizeExpr(size.evaluate_integer(sizes_));
    value.producer = producer;
    return graph::add_value(made_, std::move(value));
  }

  const graph::Graph& from_;
  const graph::Sizes sizes_;
  graph::Graph made_;
  std::map<ValueId, ValueId> ids_;
};

/// Finds exchanges that the operator's own instructions wait for, without result conversions.
std::vector<InnerExchange> find_inner(const program::DeviceProgram& device) {
  const auto last = std::find_if(
      device.instructions.rbegin(), device.instructions.rend(),
      [](const program::Instruction& instruction) { return !instruction.origin.is_none(); });
  std::vector<InnerExchange> exchanges;
  for (auto each = device.instructions.begin(); each != last.base(); ++each)
    if (each->lane == Lane::kTransfer)
      exchanges.push_back({each->op, program::priced_bytes(device, *each)});
  return exchanges;
}

}  // namespace

LoweredOperator lower_operator(const graph::Graph& graph, OpId op, const graph::Strategy& strategy,
                               std::int64_t batch, const std::vector<double>& shares,
                               const std::vector<std::size_t>& ranks) {
  LoweredOperator made{AloneGraph(graph, op, batch).take(), {}, {}};
  // The rule comes from the operator's own graph, since the producers of its operands may matter.
  const std::vector<graph::ShardingRule> rules{
      rule_like(graph::find_rule_or_whole(graph, op, {{"batch", batch}}), made.graph.ops[0])};
  Sharding sharding;
  sharding.devices.assign(shares.size(), "");
  sharding.shares = shares;
  sharding.batch = batch;
  sharding.ops = {strategy};
  sharding.sources.assign(made.graph.values.size(), graph::kWholeForm);
  for (std::size_t o = 0; o < rules[0].operands.size(); ++o)
    sharding.sources[rules[0].operands[o].index()] = strategy.operands[o];
  program::Program program = lower_some_ranks(made.graph, sharding, rules, ranks, {});
  made.exchanges = find_inner(program.devices.front());
  for (program::DeviceProgram& device : program.devices) {
    std::erase_if(device.instructions, [](const program::Instruction& instruction) {
      return instruction.origin.is_none() || instruction.lane != Lane::kCompute;
    });
    made.ranks.push_back(std::move(device));
  }
  return made;
}

}  // namespace motley::synth
