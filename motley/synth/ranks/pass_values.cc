#include "motley/synth/ranks/pass_values.h"

#include <fmt/format.h>

#include "motley/synth/operators/batch_norm.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharding_rules.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::Op;

/// A micro-batch's own statistics give its own terms of the weights' gradients.
std::vector<graph::ShardingRule> find_time_rules(const PassedStep& step) {
  std::vector<graph::ShardingRule> rules = find_rules(step.graph, step.batch());
  const graph::Sizes sizes{{std::string(kBatch), step.batch()}};
  for (std::size_t i = 0; step.is_loop && i < rules.size(); ++i)
    if (is_batch_norm_backward(step.graph.ops[i]))
      rules[i] = graph::find_rule_or_whole(step.graph, OpId(i), sizes, graph::Statistics::kOwn);
  return rules;
}

void spread_over_time(PassValues& values) {
  const PassedStep& step = values.step;
  for (const plan::Stretch& each : step.passes.stretches) {
    values.time.devices.push_back(std::to_string(values.time.devices.size()));
    values.time.shares.push_back(static_cast<double>(each.count));
  }
  values.time.batch = step.batch();
  if (step.times() == 1) {
    values.rules = spread_samples(step.graph, values.time);
  } else {
    values.rules = find_time_rules(step);
    spread_samples_by(step.graph, values.rules, RepeatedTerms::kKept, values.time);
  }
  values.held = Held(step.graph.values.size());
  values.held.homes = values.time.sources;
  for (std::size_t i = 0; i < step.graph.ops.size(); ++i)
    values.held.add(step.graph.ops[i], values.rules[i], values.time.ops[i]);
}

void find_made_of_inputs(PassValues& values) {
  for (const graph::Value& value : values.step.graph.values)
    values.is_of_inputs.push_back(value.role != graph::ValueRole::kParameter ? 1 : 0);
  for (const Op& op : values.step.graph.ops) {
    char all = 1;
    graph::for_each_value(op.arguments,
                          [&](ValueId each) { all = all & values.is_of_inputs[each.index()]; });
    for (const ValueId output : op.outputs) values.is_of_inputs[output.index()] = all;
  }
}

/// In a loop: what it begins with, and what is made of that.
void find_own_of_loop(PassValues& values) {
  const graph::Graph& graph = values.step.graph;
  for (const graph::Output& output : graph.outputs)
    if (output.kind == graph::OutputKind::kUpdate) values.is_own[output.of.index()] = 1;
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const bool begins =
        values.time.ops[i].factor >= 0 && (trains_batch_norm(op) || is_mean_loss(op));
    if (!begins && !values.takes_own(i)) continue;
    for (const ValueId output : op.outputs)
      values.is_own[output.index()] = values.home(output) == graph::kWholeForm ? 1 : 0;
  }
}

/// Of replicas: each pass makes its own, as another replica's are elsewhere.
void find_made_of_samples(PassValues& values) {
  for (std::size_t i = 0; i < values.rules.size(); ++i) {
    const Op& op = values.step.graph.ops[i];
    const std::vector<ValueId>& operands = values.rules[i].operands;
    bool is_of = false;
    for (std::size_t o = 0; o < operands.size(); ++o)
      is_of = is_of || values.wanted(i, o) != graph::kWholeForm ||
              values.is_own[operands[o].index()] != 0;
    for (std::size_t r = 0; is_of && r < op.outputs.size(); ++r)
      if (values.home(op.outputs[r]) == graph::kWholeForm && !(is_mean_loss(op) && r == 1))
        values.is_own[op.outputs[r].index()] = 1;
  }
}

}  // namespace

tl::unexpected<Error> PassedStep::refuse(const std::string& why) const {
  return usage_error(
      "synth.accumulation",
      fmt::format("{}: a step cannot be done in {} micro-batches: {}", graph.name, times(), why));
}

bool is_mean_loss(const Op& op) {
  const auto* reduction =
      op.arguments.size() > 3 ? std::get_if<std::int64_t>(&op.arguments[3].value) : nullptr;
  return is_nll(op) && reduction != nullptr && *reduction == kMeanReduction;
}

Form PassValues::wanted(std::size_t op, std::size_t operand) const {
  const ValueId value = rules[op].operands[operand];
  const Form& form = time.ops[op].operands[operand];
  const bool is_home =
      is_ignored(rules[op], operand) || is_same(home(value), form, held.identical[value.index()]);
  return is_home ? home(value) : form;
}

bool PassValues::takes_sum(std::size_t op, std::size_t operand) const {
  return home(rules[op].operands[operand]) == graph::kPartialForm &&
         wanted(op, operand) == graph::kWholeForm;
}

bool PassValues::takes_own(std::size_t op) const {
  for (std::size_t o = 0; o < rules[op].operands.size(); ++o)
    if (is_own[rules[op].operands[o].index()] != 0 || (step.is_loop && takes_sum(op, o)))
      return true;
  return false;
}

PassValues find_pass_values(const PassedStep& step) {
  PassValues values{step, {}};
  spread_over_time(values);
  find_made_of_inputs(values);
  values.is_own.assign(step.graph.values.size(), 0);
  if (step.is_loop)
    find_own_of_loop(values);
  else if (step.has_terms)
    find_made_of_samples(values);
  return values;
}

}  // namespace motley::synth
