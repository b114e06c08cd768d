#include "motley/synth/ranks/lower_sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/reach.h"
#include "motley/plan/shares.h"
#include "motley/program/program_text.h"
#include "motley/synth/operators/batch_norm.h"
#include "motley/synth/operators/rewrite.h"
#include "motley/synth/ranks/exchange_methods.h"
#include "motley/synth/ranks/lower_rank.h"
#include "motley/synth/ranks/recomputation.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::ShardingRule;
using graph::Strategy;

tl::unexpected<Error> unsupported(const graph::Graph& graph, const graph::Op& op,
                                  const std::string& reason) {
  return usage_error(
      "synth.unsupported",
      fmt::format("{}: cannot split operator {} = {} in module '{}' over devices: {}; train on one "
                  "device, without the others (--exclude)",
                  graph.name, op.outputs.empty() ? "" : fmt::format("%{}", op.outputs[0].value),
                  op.full_name(), op.module, reason));
}

/// Can terms of this dtype be summed over devices?
bool is_summable(DType dtype) {
  return is_floating(dtype) || is_complex(dtype) || dtype == DType::kI32 || dtype == DType::kI64;
}

tl::unexpected<Error> refuse(const graph::Graph& graph, const std::string& what) {
  return usage_error("synth.sharding", fmt::format("{}: {}", graph.name, what));
}

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
    const OpId id(i);
    if (!is_of_rule(rules[i], sharding.ops[i]) ||
        !can_lower(graph, id, rules[i], sharding.ops[i], sharding.shares))
      return refuse(
          graph, fmt::format("operator {} in module '{}' cannot be split so; its rule is {}",
                             graph.ops[i].full_name(), graph.ops[i].module, print_rule(rules[i])));
  }
  return {};
}

}  // namespace

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
  if (strategy.factor < 0) return true;
  const graph::Factor& factor = rule.factors[static_cast<std::size_t>(strategy.factor)];
  if (factor.split == graph::Split::kRewritten) return can_rewrite(graph, about, strategy);
  // A result independent of the split must also be computed on devices without a part of it.
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

namespace {

class RankLowering {
 public:
  /// References must outlive it; `accumulation` as in lower_some_ranks.
  RankLowering(const graph::Graph& graph, const Sharding& sharding,
               const std::vector<ShardingRule>& rules, const LowerOptions& options,
               const Accumulation* accumulation)
      : accumulation_(accumulation),
        micro_batches_(sharding.micro_batches),
        spread_(accumulation == nullptr
                    ? std::nullopt
                    : std::optional(spread_accumulation(*accumulation, graph, sharding, rules))),
        step_(spread_ ? plan_step(accumulation->graph, spread_->sharding, spread_->rules, options,
                                  &accumulation->copies)
                      : plan_step(graph, sharding, rules, options)),
        parts_(step_.sharding.shares) {
    MOTLEY_CHECK(accumulation == nullptr || accumulation->micro_batches == sharding.micro_batches);
  }

  /// Lowers the program's next device; copies the program of an identical one lowered before.
  void lower(std::size_t rank) {
    const std::int64_t batch = step_.sharding.batch;
    for (const auto& [device, place] : places_)
      if (place.answers_identical(rank, Place::Identical::kProgram)) {
        program::DeviceProgram copy = devices_[device];
        copy.device = step_.sharding.devices[rank];
        copy.first_sample = parts_.begin(batch, rank);
        place_of_.emplace(rank, device);
        devices_.push_back(std::move(copy));
        return;
      }
    Place place(parts_, rank);
    program::DeviceProgram program = lower_rank(
        step_, place, {step_.sharding.devices[rank], place.own(batch), parts_.begin(batch, rank)});
    if (accumulation_ != nullptr) finish_accumulated(program);
    place_of_.emplace(rank, devices_.size());
    places_.emplace(devices_.size(), std::move(place));
    devices_.push_back(std::move(program));
  }

  /// Does a lowered rank have the times of another rank?
  bool stands_for(std::size_t rank, std::size_t other) const {
    return places_.at(place_of_.at(rank)).answers_identical(other, Place::Identical::kTimes);
  }

  /// Returns the lowered devices as a program with one group. Call last.
  program::Program put_together() {
    program::Program program;
    program.global_batch = step_.sharding.batch * micro_batches_;
    program.micro_batches = micro_batches_;
    program::Group group;
    for (std::size_t i = 0; i < devices_.size(); ++i) group.members.push_back(Rank(i));
    program.devices = std::move(devices_);
    if (step_.sharding.devices.size() > 1) program.groups.push_back(std::move(group));
    return program;
  }

 private:
  void finish_accumulated(program::DeviceProgram& program) const {
    program.samples *= micro_batches_;
    for (program::Instruction& instruction : program.instructions)
      if (!instruction.origin.is_none())
        instruction.origin = accumulation_->copies[instruction.origin.index()].of;
  }

  const Accumulation* accumulation_;
  const std::int64_t micro_batches_;
  const std::optional<AccumulatedSharding> spread_;
  const ShardedStep step_;
  Parts parts_;
  std::vector<program::DeviceProgram> devices_;
  std::map<std::size_t, Place> places_;          // by position in devices_, without copies
  std::map<std::size_t, std::size_t> place_of_;  // by rank
};

}  // namespace

program::Program lower_some_ranks(const graph::Graph& graph, const Sharding& sharding,
                                  const std::vector<ShardingRule>& rules,
                                  const std::vector<std::size_t>& ranks,
                                  const LowerOptions& options, const Accumulation* accumulation) {
  RankLowering lowering(graph, sharding, rules, options, accumulation);
  for (const std::size_t rank : ranks) lowering.lower(rank);
  return lowering.put_together();
}

RankKinds lower_kinds(const graph::Graph& graph, const Sharding& sharding,
                      const std::vector<ShardingRule>& rules, const std::vector<int>& classes,
                      const LowerOptions& options, const Accumulation* accumulation) {
  RankLowering lowering(graph, sharding, rules, options, accumulation);
  RankKinds kinds;
  std::vector<std::size_t> firsts;
  for (std::size_t rank = 0; rank < sharding.devices.size(); ++rank) {
    const auto kind = std::find_if(firsts.begin(), firsts.end(), [&](std::size_t first) {
      return classes[first] == classes[rank] && lowering.stands_for(first, rank);
    });
    kinds.of_rank.push_back(static_cast<std::size_t>(kind - firsts.begin()));
    if (kind != firsts.end()) continue;
    firsts.push_back(rank);
    lowering.lower(rank);
  }
  kinds.program = lowering.put_together();
  return kinds;
}

Result<std::optional<Accumulation>> find_accumulation(const graph::Graph& graph,
                                                      const Sharding& sharding,
                                                      plan::BatchNormSpan batch_norm) {
  if (sharding.micro_batches == 1 && sharding.recomputes.empty() && sharding.gathered_again.empty())
    return std::optional<Accumulation>();
  MOTLEY_ASSIGN(Accumulation made,
                accumulate(graph, sharding.batch * sharding.micro_batches, sharding.micro_batches,
                           sharding.micro_batches == 1 ? plan::BatchNormSpan::kStep : batch_norm));
  const std::vector<std::size_t> only(static_cast<std::size_t>(sharding.micro_batches), 0);
  GatheredAgain gathered;
  for (const ValueId parameter : sharding.gathered_again)
    gathered.parameters.insert(graph.value(parameter).name);
  return recompute(std::move(made), {{sharding.recomputes}, only, {{std::move(gathered)}}});
}

Result<program::Program> lower_ranks(const graph::Graph& graph, const Sharding& sharding,
                                     const std::vector<ShardingRule>& rules,
                                     const std::vector<std::size_t>& ranks,
                                     const LowerOptions& options) {
  MOTLEY_ASSIGN(const auto accumulation,
                find_accumulation(graph, sharding, options.batch_norm_span));
  return lower_some_ranks(graph, sharding, rules, ranks, options,
                          accumulation ? &*accumulation : nullptr);
}

std::vector<std::size_t> all_ranks(const Sharding& sharding) {
  std::vector<std::size_t> ranks(sharding.devices.size());
  std::iota(ranks.begin(), ranks.end(), std::size_t{0});
  return ranks;
}

Result<program::Program> lower_sharded(const graph::Graph& graph, const Sharding& sharding,
                                       const LowerOptions& options) {
  const std::vector<ShardingRule> rules = find_rules_of(graph, sharding, options.batch_norm);
  MOTLEY_RETURN_IF_ERROR(check_devices(graph, sharding.devices.size(), options.batch_norm));
  MOTLEY_RETURN_IF_ERROR(verify_sharding(graph, sharding, rules));
  MOTLEY_ASSIGN(program::Program program,
                lower_ranks(graph, sharding, rules, all_ranks(sharding), options));
  MOTLEY_RETURN_IF_ERROR(set_methods(program, sharding.exchanges));
  MOTLEY_RETURN_IF_ERROR(program::verify_program(program, graph.name));
  return program;
}

}  // namespace motley::synth
