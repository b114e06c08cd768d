#include "motley/synth/stages/lower_stages.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/program/effects.h"
#include "motley/program/state_names.h"
#include "motley/synth/stages/boundary_transfer.h"
#include "motley/synth/stages/gradient_exchange.h"
#include "motley/synth/stages/stage_kinds.h"
#include "motley/synth/stages/stage_programs.h"
#include "motley/synth/stages/step_end.h"
#include "motley/synth/state/carried.h"

namespace motley::synth {
namespace {

/// Behind which position a stage has one of its outputs in its form. What its devices exchange for
/// it is waited for at the end of its passes: before, that would hold up what others wait for.
std::int64_t ready_at(const ShardedStages& stages, std::size_t s, std::size_t output) {
  const StageGraph& stage = stages.step.stages[s];
  const ShardedStep& step = *stages.stages[s].step;
  const ValueId value = stage.graph.outputs[output].value;
  const OpId producer = stage.graph.value(value).producer;
  const bool is_there =
      stage.ranks.size() == 1 || (step.schedule.bucket_of(static_cast<std::int64_t>(output)) < 0 &&
                                  step.is_home(value, step.outputs[output]));
  if (is_there && !producer.is_none()) return stages.position_of(s, producer);
  std::int64_t last = stage.positions.empty() ? 0 : stage.positions.back();
  for (const BoundaryValue& each : stages.step.boundary_values)
    if (each.to == s && each.read == value) last = std::max(last, each.position);
  return last;
}

/// By rank the position of its last operator that exchanges something. These share the transfer
/// lane with the sums of gradients. One of these in front of them would hold up the stage's passes,
/// and whoever waits for these, for as long as it takes between hosts; behind them it waits for
/// none.
std::vector<std::int64_t> find_busy(const ShardedStages& stages) {
  std::vector<std::int64_t> busy(stages.names.size(), 0);
  for (const Seat& seat : stages.seats)
    if (const std::int64_t op = stages.stages[seat.stage].step->last_exchange; op >= 0)
      busy[seat.rank] = std::max(
          busy[seat.rank], stages.step.stages[seat.stage].positions[static_cast<std::size_t>(op)]);
  return busy;
}

/// Of GradientExchange::Target.
struct OwnerTarget {
  std::map<std::string, std::vector<double>> shares;
  std::vector<std::size_t> nodes;
};

class StageLowering {
 public:
  /// What is passed by reference must outlive it.
  StageLowering(const LowerOptions& options, OwnerTarget owners, ShardedStages& stages,
                StagePrograms& programs)
      : options_(options),
        stages_(stages),
        programs_(programs),
        transfer_(stages, programs),
        busy_until_(find_busy(stages)),
        gradients_(stages.step, target(std::move(owners))) {}

  Result<void> run(const graph::Graph& model) {
    // What is exchanged of gradients, and when: before anything is written.
    for (const Seat& seat : programs_.seats()) add_shares(seat);
    MOTLEY_RETURN_IF_ERROR(gradients_.arrange());
    for (const Seat& seat : programs_.seats()) programs_.writer(seat).begin();
    write_operators();
    write_step_end(model, options_.recipe, stages_, gradients_, programs_);
    return {};
  }

  const std::set<std::string>& shared() const { return gradients_.shared(); }

 private:
  GradientExchange::Target target(OwnerTarget owners) {
    return {.bucket_bytes = options_.bucket_bytes,
            .rank = [this](std::size_t s, std::size_t member) -> RankStep& {
              return programs_.step(s, member);
            },
            .update = [this](std::size_t s, std::size_t member) -> Update& {
              return programs_.writer(s, member).update();
            },
            .group = [this](const auto& ranks) { return programs_.group_of(ranks); },
            .gradient =
                [this](const GradientExchange::Share& share) {
                  return programs_.writer(share.stage, share.member).output(share.output);
                },
            .busy_until = [this](std::size_t rank) { return busy_until_[rank]; },
            .owners = std::move(owners.shares),
            .nodes = std::move(owners.nodes),
            .updates_at_once = !options_.recipe.needs_factor()};
  }

  void add_shares(const Seat& seat) {
    const ShardedStep& step = *stages_.stages[seat.stage].step;
    const std::vector<graph::Output>& outputs = stages_.graph_of(seat).outputs;
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].kind == graph::OutputKind::kGradient)
        gradients_.add({.stage = seat.stage,
                        .member = seat.member,
                        .rank = seat.rank,
                        .output = static_cast<std::int64_t>(o),
                        .form = step.home(outputs[o].of),
                        .is_term = step.outputs[o] == graph::kPartialForm,
                        .ready = ready_at(stages_, seat.stage, o),
                        .bucket = step.schedule.bucket_of(static_cast<std::int64_t>(o))});
  }

  void write_operators() {
    std::vector<std::tuple<std::int64_t, std::size_t, std::size_t>> order;  // position, stage, slot
    for (std::size_t s = 0; s < stages_.stages.size(); ++s)
      for (std::size_t slot = 0; slot < stages_.step.stages[s].positions.size(); ++slot)
        order.emplace_back(stages_.step.stages[s].positions[slot], s, slot);
    std::sort(order.begin(), order.end());
    const std::vector<BoundaryValue>& values = stages_.step.boundary_values;
    std::size_t value = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto& [position, stage, slot] = order[i];
      gradients_.begin(position - 1);
      write_operator_of(stage, slot);
      if (i + 1 < order.size() && std::get<0>(order[i + 1]) == position &&
          std::get<1>(order[i + 1]) == stage)
        continue;
      for (; value < values.size() && values[value].position == position &&
             values[value].from == stage;
           ++value)
        transfer_.pass_on(value);
    }
    gradients_.begin(order.empty() ? 0 : std::get<0>(order.back()));
    MOTLEY_CHECK(value == values.size());
  }

  void write_operator_of(std::size_t s, std::size_t slot) {
    const StageGraph& stage = stages_.step.stages[s];
    const std::size_t op = stages_.stages[s].step->schedule.order[slot].index();
    for (std::size_t member = 0; member < stage.ranks.size(); ++member) {
      const std::size_t rank = stage.ranks[member];
      if (!programs_.is_lowered(rank)) continue;
      programs_.enter(rank, stage.tasks[op]);
      ProgramBuilder& builder = programs_.builder(rank);
      // What a step passes on once may be large. Who reads it has it when gradients come back.
      if (stage.tasks[op] > 0 && stage.graph.ops[op].direction == graph::Direction::kBackward)
        programs_.await_first(rank);
      const std::size_t from = builder.instructions();
      transfer_.join_operands({s, member, rank}, stage.graph.ops[op]);
      if (stage.graph.ops[op].name == kSumReplicas)
        sum_replicas(s, member, op);
      else
        programs_.writer(s, member).write(slot);
      builder.set_origins(from, stage.copies[op].of);
    }
  }

  /// Of what all replicas have a term, which each stage has whole: over all its devices.
  void sum_replicas(std::size_t s, std::size_t member, std::size_t op) {
    const graph::Op& about = stages_.step.stages[s].graph.ops[op];
    RankStep& rank = programs_.step(s, member);
    const ValueId term = std::get<ValueId>(about.arguments[0].value);
    const BufferId once = rank.keep_once(rank.in_form(term, graph::kWholeForm), about.module);
    ProgramBuilder& builder = rank.builder();
    const program::Buffer like = builder.buffer(once);
    const BufferId sum =
        builder.make("aten::clone", {{once}, keyword("memory_format", "contiguous")}, like.dtype,
                     like.shape, about.module);
    const OpId origin = stages_.step.stages[s].origins[op];
    std::vector<std::size_t> ranks;
    for (const StageGraph& stage : stages_.step.stages)
      if (std::find(stage.origins.begin(), stage.origins.end(), origin) != stage.origins.end())
        ranks.insert(ranks.end(), stage.ranks.begin(), stage.ranks.end());
    std::sort(ranks.begin(), ranks.end());
    builder.use_group(programs_.group_of(ranks));
    builder.all_reduce(sum, about.module);
    rank.set_value(about.outputs[0], sum);
  }

  const LowerOptions& options_;
  ShardedStages& stages_;
  StagePrograms& programs_;
  BoundaryTransfer transfer_;
  const std::vector<std::int64_t> busy_until_;  // by rank
  GradientExchange gradients_;
};

/// What lives from step to step is not the same on all devices: each has its part, which is all of
/// it where it is not cut; of several that have the same the first saves it. `shared`: parameters
/// whose states are.
void mark_parts(const ShardedStages& stages, const std::set<std::string>& shared,
                program::Program& program) {
  for (program::DeviceProgram& device : program.devices)
    for (program::Buffer& buffer : device.buffers)
      if (program::is_persistent(buffer.kind) && buffer.name != program::kLossScaleState &&
          buffer.elements() > 0 && !buffer.part)
        buffer.part = program::Part{1, 0, buffer.elements(), 1};
  // The parts of one stage are all of a tensor: those of the first that has it are saved.
  std::map<std::string, std::size_t> first;
  for (std::size_t s = 0; s < stages.stages.size(); ++s)
    for (const graph::Value& value : stages.step.stages[s].graph.values)
      if (value.producer.is_none() && !value.name.empty()) first.try_emplace(value.name, s);
  std::set<std::pair<std::string, std::int64_t>> saved;       // name, where the part begins
  std::set<std::pair<std::string, std::size_t>> is_saved_by;  // name, rank
  for (const Seat& seat : stages.seats)
    for (program::Buffer& buffer : program.devices[seat.rank].buffers) {
      if (!buffer.part) continue;
      const std::string of = buffer.name.substr(0, buffer.name.find('/'));
      const auto owner = first.find(of);
      // Shared states are in all stages that have the parameter.
      const bool is_shared = of != buffer.name && shared.contains(of);
      if (owner == first.end() || (owner->second != seat.stage && !is_shared)) continue;
      if (saved.insert({buffer.name, buffer.part->begin}).second)
        is_saved_by.insert({buffer.name, seat.rank});
    }
  for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
    for (program::Buffer& buffer : program.devices[rank].buffers)
      if (buffer.part) buffer.part->is_copy = !is_saved_by.contains({buffer.name, rank});
}

Result<OwnerTarget> find_owner_target(const graph::Graph& graph, const plan::Plan& plan,
                                      const cluster::Cluster& cluster,
                                      const std::vector<plan::Member>& members) {
  MOTLEY_ASSIGN(const auto entries, plan::find_owners(plan.owners, graph));
  OwnerTarget owners;
  for (const plan::Member& member : members)
    owners.nodes.push_back(cluster.device(member.device).node.index());
  for (const auto& [name, entry] : entries)
    for (const plan::Member& member : members) {
      const auto& known = plan.owners[entry].shares;
      const auto share = known.find(member.device);
      owners.shares[name].push_back(share == known.end() ? 0 : share->second);
    }
  return owners;
}

Result<std::unique_ptr<ShardedStages>> cut_and_shard(const graph::Graph& graph,
                                                     const plan::Plan& plan,
                                                     const cluster::Cluster& cluster,
                                                     const LowerOptions& options,
                                                     const std::vector<plan::Member>& members) {
  MOTLEY_ASSIGN(StagedStep step, cut_into_stages(graph, plan, members));
  std::vector<std::string> names;
  for (const plan::Member& member : members) names.push_back(cluster.device(member.device).name);
  return shard_stages(graph, std::move(step), std::move(names), options);
}

}  // namespace

Result<std::optional<StageKinds>> lower_stage_kinds(const graph::Graph& graph,
                                                    const plan::Plan& plan,
                                                    const cluster::Cluster& cluster,
                                                    const std::vector<int>& classes) {
  // What each owns of a parameter depends on all.
  if (!plan.owners.empty()) return std::nullopt;
  const LowerOptions options = options_of(plan);
  MOTLEY_ASSIGN(const auto stages,
                cut_and_shard(graph, plan, cluster, options, plan::members(plan)));
  const std::vector<IdenticalRanks::StandIn> identical = find_stage_kinds(*stages, classes);
  StagePrograms programs(*stages, {}, identical);
  MOTLEY_RETURN_IF_ERROR(StageLowering(options, {}, *stages, programs).run(graph));
  if (!programs.are_identical()) return std::nullopt;
  StageKinds kinds{
      with_carried(programs.put_together(), plan.carried), {}, programs.all_of_groups()};
  kinds.program.global_batch = plan.global_batch;
  for (const IdenticalRanks::StandIn& each : identical) kinds.identical.push_back(each.ranks);
  return kinds;
}

Result<program::Program> lower_stages(const graph::Graph& graph, const plan::Plan& plan,
                                      const cluster::Cluster& cluster, const LowerOptions& options,
                                      const StageRanks& ranks) {
  MOTLEY_ASSIGN(const auto stages, cut_and_shard(graph, plan, cluster, options, ranks.members));
  std::vector<IdenticalRanks::StandIn> alone;
  for (std::size_t rank = 0; rank < ranks.members.size(); ++rank) alone.push_back({{rank}, rank});
  MOTLEY_ASSIGN(OwnerTarget owners, find_owner_target(graph, plan, cluster, ranks.members));
  StagePrograms programs(*stages, ranks.groups, std::move(alone));
  StageLowering lowering(options, std::move(owners), *stages, programs);
  MOTLEY_RETURN_IF_ERROR(lowering.run(graph));
  program::Program program = programs.put_together();
  program.global_batch = plan.global_batch;
  mark_parts(*stages, lowering.shared(), program);
  return with_carried(std::move(program), plan.carried);
}

}  // namespace motley::synth
