#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "motley/graph/work.h"
#include "motley/plan/shares.h"
#include "motley/program/program_text.h"
#include "motley/synth/sharded_operators.h"
#include "motley/synth/sharding.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Slab;
using graph::Strategy;

bool is_named(const graph::Op& op, std::string_view name) { return op.name == name; }

/// Does it draw random numbers that would differ from one device's?
bool draws_elsewhere(const graph::Op& op) {
  const bool is_attention = is_named(op, "motley::attention");
  if (is_attention || is_named(op, "motley::attention_backward")) {
    const auto* dropout = std::get_if<double>(&op.arguments[is_attention ? 4 : 7].value);
    return dropout != nullptr && *dropout != 0;
  }
  return graph::is_random(op.name) && !is_named(op, "aten::native_dropout");
}

/// What of the graph anything wanted depends on, and in which form its outputs must end.
class Wanted {
 public:
  Wanted(const graph::Graph& graph, const Sharding& sharding) : ops_(graph.ops.size(), 0) {
    for (const graph::Output& output : graph.outputs) {
      const bool is_gradient = output.kind == graph::OutputKind::kGradient;
      forms_.push_back(is_gradient ? sharding.sources[output.of.index()] : graph::kWholeForm);
      if (output.kind == graph::OutputKind::kExtra) continue;
      want(graph, output.value);
    }
  }
  bool op(std::size_t id) const { return ops_[id] != 0; }
  const Form& output(std::size_t index) const { return forms_[index]; }

 private:
  void want(const graph::Graph& graph, ValueId value) {
    std::vector<ValueId> stack{value};
    while (!stack.empty()) {
      const OpId producer = graph.value(stack.back()).producer;
      stack.pop_back();
      if (producer.is_none() || ops_[producer.index()]) continue;
      ops_[producer.index()] = 1;
      graph::for_each_value(graph.op(producer).arguments,
                            [&](ValueId operand) { stack.push_back(operand); });
    }
  }

  std::vector<char> ops_;
  std::vector<Form> forms_;  // by output
};

/// Lowers for one rank.
class ShardedEmitter : ShardedOperators {
 public:
  ShardedEmitter(const graph::Graph& graph, const Sharding& sharding,
                 const std::vector<ShardingRule>& rules, const Wanted& wanted, std::size_t rank,
                 const LowerOptions& options, program::DeviceProgram start)
      : ShardedOperators(graph, sharding, rules, rank, options, std::move(start)),
        wanted_(wanted) {}

  program::DeviceProgram emit();

 private:
  /// Which forms of each value operators want, to make them as soon as the value is there.
  void find_needed();
  void add_sources();
  void emit_operator(OpId id);
  void emit_outputs();

  const Wanted& wanted_;
  std::vector<std::vector<Form>> wanted_forms_;  // by value, besides its home
};

program::DeviceProgram ShardedEmitter::emit() {
  find_needed();
  add_sources();
  for (std::size_t i = 0; i < graph_.ops.size(); ++i)
    if (wanted_.op(i)) emit_operator(OpId(static_cast<std::int64_t>(i)));
  emit_outputs();
  return builder_.finish();
}

void ShardedEmitter::find_needed() {
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!wanted_.op(i)) continue;
    const graph::Op& op = graph_.ops[i];
    for (std::size_t r = 0; r < op.outputs.size(); ++r)
      homes_[op.outputs[r].index()] = sharding_.ops[i].results[r];
  }
  wanted_forms_.resize(graph_.values.size());
  const auto want = [&](ValueId value, const Form& form) {
    std::vector<Form>& forms = wanted_forms_[value.index()];
    if (form != homes_[value.index()] && std::find(forms.begin(), forms.end(), form) == forms.end())
      forms.push_back(form);
  };
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!wanted_.op(i)) continue;
    for (std::size_t o = 0; o < rules_[i].operands.size(); ++o)
      if (!is_ignored(rules_[i], o)) want(rules_[i].operands[o], sharding_.ops[i].operands[o]);
  }
  for (std::size_t o = 0; o < graph_.outputs.size(); ++o)
    if (graph_.outputs[o].kind != graph::OutputKind::kExtra)
      want(graph_.outputs[o].value, wanted_.output(o));
}

void ShardedEmitter::add_sources() {
  std::vector<char> used(graph_.values.size(), 0);
  for (std::size_t i = 0; i < graph_.ops.size(); ++i)
    if (wanted_.op(i))
      graph::for_each_value(graph_.ops[i].arguments, [&](ValueId v) { used[v.index()] = 1; });
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const graph::ValueRole role = graph_.values[v].role;
    if (role == graph::ValueRole::kActivation || role == graph::ValueRole::kTangent) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    add_persistent(id, local_shape(id, homes_[v]));
    if (role == graph::ValueRole::kParameter && homes_[v].kind == FormKind::kSharded) {
      const Slab slab = slab_of(whole_shape(id), homes_[v]);
      builder_.set_part(buffers_[v], {slab.before, begin(slab.extent), slab.extent, slab.after});
    }
  }
  for (const graph::Output& output : graph_.outputs)
    if (output.kind == graph::OutputKind::kGradient) add_states(output.of);
  emit_inputs(used);
}

void ShardedEmitter::emit_operator(OpId id) {
  emit_one(id);
  for (const ValueId output : graph_.op(id).outputs)
    for (const Form& form : wanted_forms_[output.index()]) in_form(output, form);
}

void ShardedEmitter::emit_outputs() {
  std::map<DType, Updates> by_dtype;
  for (std::size_t o = 0; o < graph_.outputs.size(); ++o) {
    const graph::Output& output = graph_.outputs[o];
    if (output.kind == graph::OutputKind::kExtra) continue;
    add_output(static_cast<std::int64_t>(o), in_form(output.value, wanted_.output(o)),
               by_dtype[graph_.value(output.value).dtype]);
  }
  const BufferId stop = emit_stop_request();
  builder_.all_reduce(stop, "stop");
  for (const auto& [dtype, updates] : by_dtype) emit_update(updates, "update");
  emit_end(stop);
}

tl::unexpected<Error> refuse(const graph::Graph& graph, const std::string& what) {
  return usage_error("synth.sharding", fmt::format("{}: {}", graph.name, what));
}

/// Is the strategy one of the rule's?
bool is_of_rule(const ShardingRule& rule, const Strategy& strategy) {
  if (strategy.factor >= 0) {
    if (strategy.factor >= static_cast<int>(rule.factors.size()) || strategy.outer < 1 ||
        strategy.inner < 1)
      return false;
    return split_strategy(rule, strategy.factor, strategy.outer, strategy.inner) == strategy;
  }
  if (strategy == whole_strategy(rule)) return true;
  const std::vector<Strategy> ways = linear_strategies(rule);
  return std::find(ways.begin(), ways.end(), strategy) != ways.end();
}

Result<void> verify_sharding(const graph::Graph& graph, const Sharding& sharding,
                             const std::vector<ShardingRule>& rules) {
  if (sharding.devices.empty() || sharding.devices.size() != sharding.shares.size() ||
      sharding.ops.size() != graph.ops.size() || sharding.sources.size() != graph.values.size())
    return refuse(graph, "the sharding is not of this graph");
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const OpId id(static_cast<std::int64_t>(i));
    if (!is_of_rule(rules[i], sharding.ops[i]) ||
        !can_lower(graph, id, rules[i], sharding.ops[i], sharding.shares))
      return refuse(
          graph, fmt::format("operator {} in module '{}' cannot be split so; its rule is {}",
                             graph.ops[i].full_name(), graph.ops[i].module, print_rule(rules[i])));
  }
  return {};
}

}  // namespace

std::vector<ShardingRule> find_rules(const graph::Graph& graph, std::int64_t batch) {
  const graph::Sizes sizes{{"batch", batch}};
  std::vector<ShardingRule> rules;
  rules.reserve(graph.ops.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i)
    rules.push_back(graph::find_rule_or_whole(graph, OpId(static_cast<std::int64_t>(i)), sizes));
  return rules;
}

bool can_lower(const graph::Graph& graph, OpId op, const ShardingRule& rule,
               const Strategy& strategy, const std::vector<double>& shares) {
  const graph::Op& about = graph.op(op);
  for (std::size_t r = 0; r < strategy.results.size(); ++r) {
    const DType dtype = graph.value(about.outputs[r]).dtype;
    if (strategy.results[r].kind == FormKind::kPartial && dtype != DType::kNone &&
        !is_floating(dtype))
      return false;
  }
  for (std::size_t o = 0; o < strategy.operands.size(); ++o)
    if (strategy.operands[o].kind == FormKind::kPartial &&
        !is_floating(graph.value(rule.operands[o]).dtype))
      return false;
  if (draws_elsewhere(about)) return false;
  if (strategy.factor < 0) return true;
  const graph::Factor& factor = rule.factors[static_cast<std::size_t>(strategy.factor)];
  if (factor.split == graph::Split::kRewritten) return can_rewrite(graph, about, strategy);
  // A result that does not depend on the split must be computed where no part of it is, too.
  const std::vector<std::int64_t> parts =
      plan::round_shares(shares, factor.size / (strategy.outer * strategy.inner));
  const bool has_empty = std::find(parts.begin(), parts.end(), 0) != parts.end();
  return !has_empty || std::none_of(strategy.results.begin(), strategy.results.end(),
                                    [](const Form& form) { return form == graph::kWholeForm; });
}

Form input_form(const graph::Graph& graph, ValueId input, std::int64_t global_batch) {
  const std::vector<graph::SizeExpr>& shape = graph.value(input).shape;
  if (shape.empty() || !shape[0].depends_on("batch")) return graph::kWholeForm;
  return {FormKind::kSharded, 0, 1, global_batch, 1};
}

Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options) {
  const std::vector<ShardingRule> rules = find_rules(graph, sharding.global_batch);
  MOTLEY_RETURN_IF_ERROR(verify_sharding(graph, sharding, rules));
  const Wanted wanted(graph, sharding);
  const std::vector<std::int64_t> samples =
      plan::round_shares(sharding.shares, sharding.global_batch);
  program::Program program;
  program.global_batch = sharding.global_batch;
  program::Group group;
  std::int64_t first = 0;
  for (std::size_t rank = 0; rank < sharding.devices.size(); ++rank) {
    group.members.push_back(Rank(static_cast<std::int64_t>(rank)));
    program.devices.push_back(ShardedEmitter(graph, sharding, rules, wanted, rank, options,
                                             {sharding.devices[rank], samples[rank], first})
                                  .emit());
    first += samples[rank];
  }
  program.groups.push_back(std::move(group));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  return program;
}

}  // namespace motley::synth
