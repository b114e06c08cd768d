#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/plan/shares.h"
#include "motley/program/program_text.h"
#include "motley/synth/accumulation.h"
#include "motley/synth/sharded_operators.h"
#include "motley/synth/sharding.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Slab;
using graph::Strategy;

/// Why an operator's random numbers would differ from one device's; null: it draws none, or they
/// would not.
const char* why_drawn_elsewhere(const graph::Op& op) {
  const bool is_attention = op.name == "motley::attention";
  if (is_attention || op.name == "motley::attention_backward") {
    const auto* dropout = std::get_if<double>(&op.arguments[is_attention ? 4 : 7].value);
    return dropout != nullptr && *dropout != 0 ? "its dropout would differ from one device's"
                                               : nullptr;
  }
  return graph::is_random(op.name) && op.name != "aten::native_dropout"
             ? "it draws random numbers that would differ from one device's"
             : nullptr;
}

tl::unexpected<Error> unsupported(const graph::Graph& graph, const graph::Op& op,
                                  const std::string& reason) {
  return usage_error(
      "synth.unsupported",
      fmt::format("{}: cannot split operator {} = {} in module '{}' over devices: {}; train on one "
                  "device",
                  graph.name, op.outputs.empty() ? "" : fmt::format("%{}", op.outputs[0].value),
                  op.full_name(), op.module, reason));
}

/// Lowers for one rank.
class ShardedEmitter : ShardedOperators {
 public:
  ShardedEmitter(const graph::Graph& graph, const Sharding& sharding, const ShardedStep& step,
                 std::size_t rank, const LowerOptions& options, program::DeviceProgram start)
      : ShardedOperators(graph, sharding, step, rank, options, std::move(start)) {}

  program::DeviceProgram emit();

 private:
  void add_sources();
  /// Has parameters whole that are kept in parts, for the operator at this position: what the next
  /// bucket brings is on its way while this one is used.
  void gather_parameters(std::int64_t position);
  void emit_operator(OpId id);
  void emit_outputs();

  std::vector<BufferId> gathering_;  // flat, by bucket of parameters, as far as begun
  std::size_t gathered_ = 0;         // how many of these are over
  std::vector<BufferId> exchanged_;  // flat, by bucket of outputs, as far as begun
};

std::string bucket_label(std::size_t bucket) { return fmt::format("bucket {}", bucket); }
std::string gather_label(std::size_t bucket) { return fmt::format("parameters {}", bucket); }

program::DeviceProgram ShardedEmitter::emit() {
  add_sources();
  const Schedule& schedule = step_.schedule;
  for (std::size_t i = 0; i <= schedule.order.size(); ++i) {
    if (i == schedule.early)
      for (const OpId id : schedule.early_counts) label_count(id, Labels::kSpread);
    if (i == schedule.order.size()) break;
    const auto position = static_cast<std::int64_t>(i);
    gather_parameters(position);
    emit_operator(schedule.order[i]);
    while (exchanged_.size() < schedule.buckets.size() &&
           schedule.buckets[exchanged_.size()].ready <= position)
      exchanged_.push_back(
          start_exchange(schedule.buckets[exchanged_.size()], bucket_label(exchanged_.size())));
  }
  emit_outputs();
  return builder_.finish();
}

void ShardedEmitter::add_sources() {
  std::vector<char> used(graph_.values.size(), 0);
  for (const OpId id : step_.schedule.order)
    graph::for_each_value(graph_.op(id).arguments, [&](ValueId v) { used[v.index()] = 1; });
  for (std::size_t v = 0; v < graph_.values.size(); ++v) {
    const graph::ValueRole role = graph_.values[v].role;
    if (role == graph::ValueRole::kActivation || role == graph::ValueRole::kTangent) continue;
    const ValueId id(static_cast<std::int64_t>(v));
    const Form& form = step_.homes[v];
    add_persistent(id, local_shape(id, form));
    if (role == graph::ValueRole::kParameter && form.kind == FormKind::kSharded) {
      const Slab slab = slab_of(whole_shape(id), form);
      builder_.set_part(buffers_[v], {slab.before, begin(slab.extent), slab.extent, slab.after});
    }
  }
  for (const graph::Output& output : graph_.outputs)
    if (output.kind == graph::OutputKind::kGradient) add_states(output.of);
  emit_inputs(used);
}

void ShardedEmitter::gather_parameters(std::int64_t position) {
  const std::vector<Bucket>& gathers = step_.gathers;
  while (gathering_.size() < gathers.size() &&
         (gathering_.empty() || gathers[gathering_.size() - 1].ready <= position)) {
    const std::size_t next = gathering_.size();
    gathering_.push_back(start_exchange(gathers[next], gather_label(next)));
  }
  for (; gathered_ < gathers.size() && gathers[gathered_].ready <= position; ++gathered_) {
    const Bucket& bucket = gathers[gathered_];
    const std::vector<BufferId> wholes =
        finish_exchange(bucket, gathering_[gathered_], gather_label(gathered_));
    for (std::size_t i = 0; i < wholes.size(); ++i) set_whole(bucket.items[i].value, wholes[i]);
  }
}

void ShardedEmitter::emit_operator(OpId id) {
  emit_one(id);
  for (const ValueId output : graph_.op(id).outputs)
    for (const Form& form : step_.wanted[output.index()]) start_conversion(output, form);
}

/// First what needs no exchange, then each bucket when it is over.
void ShardedEmitter::emit_outputs() {
  std::map<DType, Updates> by_dtype;
  for (const std::int64_t index : step_.schedule.direct) {
    const auto o = static_cast<std::size_t>(index);
    const ValueId value = graph_.outputs[o].value;
    add_output(index, in_form(value, step_.outputs[o]), by_dtype[graph_.value(value).dtype]);
  }
  for (const auto& [dtype, updates] : by_dtype) emit_update(updates, "update");
  BufferId stop;
  for (std::size_t b = 0; b < exchanged_.size(); ++b) {
    const Bucket& bucket = step_.schedule.buckets[b];
    const std::vector<BufferId> values = finish_exchange(bucket, exchanged_[b], bucket_label(b));
    Updates updates;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const bool is_stop = bucket.items[i].output == BucketItem::kStop;
      if (is_stop) stop = values[i];
      if (!is_stop) add_output(bucket.items[i].output, values[i], updates);
    }
    emit_update(updates, bucket_label(b));
  }
  emit_end(stop);
}

/// Can devices hold terms of it?
bool is_summable(DType dtype) {
  return is_floating(dtype) || dtype == DType::kI32 || dtype == DType::kI64;
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

bool can_lower(const graph::Graph& graph, OpId op, const ShardingRule& rule,
               const Strategy& strategy, const std::vector<double>& shares) {
  const graph::Op& about = graph.op(op);
  for (std::size_t r = 0; r < strategy.results.size(); ++r) {
    const DType dtype = graph.value(about.outputs[r]).dtype;
    if (strategy.results[r].kind == FormKind::kPartial && dtype != DType::kNone &&
        !is_summable(dtype))
      return false;
  }
  for (std::size_t o = 0; o < strategy.operands.size(); ++o)
    if (strategy.operands[o].kind == FormKind::kPartial &&
        !is_summable(graph.value(rule.operands[o]).dtype))
      return false;
  if (shares.size() > 1 && why_drawn_elsewhere(about) != nullptr) return false;
  if (strategy.factor < 0) return true;
  const graph::Factor& factor = rule.factors[static_cast<std::size_t>(strategy.factor)];
  if (factor.split == graph::Split::kRewritten) return can_rewrite(graph, about, strategy);
  // A result that does not depend on the split must be computed where no part of it is, too.
  if (std::none_of(strategy.results.begin(), strategy.results.end(),
                   [](const Form& form) { return form == graph::kWholeForm; }))
    return true;
  const std::vector<std::int64_t> parts =
      plan::round_shares(shares, factor.size / (strategy.outer * strategy.inner));
  return std::find(parts.begin(), parts.end(), 0) == parts.end();
}

Result<void> check_devices(const graph::Graph& graph, std::size_t devices,
                           plan::BatchNormMode batch_norm) {
  if (devices < 2) return {};
  std::vector<char> is_own(graph.values.size(), 0);
  const graph::Reach live = graph::find_live(graph);
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    if (!live.holds(i)) continue;
    const graph::Op& op = graph.ops[i];
    if (const char* reason = why_drawn_elsewhere(op)) return unsupported(graph, op, reason);
    bool reads_own = false;
    graph::for_each_value(op.arguments, [&](ValueId v) { reads_own |= is_own[v.index()] != 0; });
    if (reads_own && !is_batch_norm_backward(op))
      return unsupported(graph, op,
                         "it uses statistics of each device's own samples (local batch norm)");
    if (batch_norm == plan::BatchNormMode::kLocal && trains_batch_norm(op))
      for (const std::size_t saved : {1, 2}) is_own[op.outputs[saved].index()] = 1;
  }
  return {};
}

Form input_form(const graph::Graph& graph, ValueId input, std::int64_t batch) {
  const std::vector<graph::SizeExpr>& shape = graph.value(input).shape;
  if (shape.empty() || !shape[0].depends_on("batch")) return graph::kWholeForm;
  return {FormKind::kSharded, 0, 1, batch, 1};
}

namespace {

/// `copies`: by operator, of an accumulated graph; null of a plain one.
program::Program lower_graph(const graph::Graph& graph, const Sharding& sharding,
                             const std::vector<ShardingRule>& rules,
                             const std::vector<std::size_t>& ranks, const LowerOptions& options,
                             const std::vector<Copy>* copies) {
  ShardedStep step = plan_step(graph, sharding, rules, options.bucket_bytes);
  step.copies = copies;
  const std::vector<std::int64_t> samples = plan::round_shares(sharding.shares, sharding.batch);
  program::Program program;
  program.global_batch = sharding.batch;
  program::Group group;
  for (const std::size_t rank : ranks) {
    const std::int64_t first = std::accumulate(
        samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(rank), std::int64_t{0});
    group.members.push_back(Rank(static_cast<std::int64_t>(program.devices.size())));
    program.devices.push_back(ShardedEmitter(graph, sharding, step, rank, options,
                                             {sharding.devices[rank], samples[rank], first})
                                  .emit());
  }
  if (sharding.devices.size() > 1) program.groups.push_back(std::move(group));
  return program;
}

}  // namespace

program::Program lower_some_ranks(const graph::Graph& graph, const Sharding& sharding,
                                  const std::vector<ShardingRule>& rules,
                                  const std::vector<std::size_t>& ranks,
                                  const LowerOptions& options, const Accumulation* accumulation) {
  if (accumulation == nullptr) return lower_graph(graph, sharding, rules, ranks, options, nullptr);
  MOTLEY_CHECK(accumulation->micro_batches == sharding.micro_batches);
  const AccumulatedSharding spread = spread_accumulation(*accumulation, graph, sharding, rules);
  program::Program program = lower_graph(accumulation->graph, spread.sharding, spread.rules, ranks,
                                         options, &accumulation->copies);
  program.micro_batches = sharding.micro_batches;
  program.global_batch *= sharding.micro_batches;
  for (program::DeviceProgram& device : program.devices) {
    device.samples *= sharding.micro_batches;
    for (program::Instruction& instruction : device.instructions)
      if (!instruction.origin.is_none())
        instruction.origin = accumulation->copies[instruction.origin.index()].of;
  }
  return program;
}

Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options) {
  const std::vector<ShardingRule> rules = find_rules_of(graph, sharding, options.batch_norm);
  MOTLEY_RETURN_IF_ERROR(check_devices(graph, sharding.devices.size(), options.batch_norm));
  MOTLEY_RETURN_IF_ERROR(verify_sharding(graph, sharding, rules));
  std::vector<std::size_t> ranks(sharding.devices.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  std::optional<Accumulation> accumulation;
  if (sharding.micro_batches > 1) {
    MOTLEY_ASSIGN(accumulation, accumulate(graph, sharding.batch * sharding.micro_batches,
                                           sharding.micro_batches));
  }
  program::Program program = lower_some_ranks(graph, sharding, rules, ranks, options,
                                              accumulation ? &*accumulation : nullptr);
  MOTLEY_RETURN_IF_ERROR(set_methods(program, sharding.exchanges));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  return program;
}

}  // namespace motley::synth
