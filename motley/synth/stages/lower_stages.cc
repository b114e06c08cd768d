#include "motley/synth/stages/lower_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/reach.h"
#include "motley/plan/shares.h"
#include "motley/program/effects.h"
#include "motley/program/state_names.h"
#include "motley/synth/ranks/lower_rank.h"
#include "motley/synth/stages/gradient_exchange.h"
#include "motley/synth/stages/identical_ranks.h"
#include "motley/synth/stages/stage_graphs.h"
#include "motley/synth/stages/stage_sharding.h"
#include "motley/synth/step/shared_exchange.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;
using graph::Slab;

/// How many tasks of a device ahead a receive may begin, and how many later a send is waited for.
/// It bounds what arrives early, as `ahead` of the sender does, too: with few, whoever makes
/// messages faster than a link takes them waits for each (with two, Llama of 1.1 billion weights
/// over 25 Gbit/s takes 0.950 s in place of 0.809, OPT of 1.3 over 10 Gbit/s 2.98 in place
/// of 2.51).
constexpr std::size_t kTasksAhead = 8;
/// Where a tensor ends of which a device has all.
constexpr std::int64_t kWhole = std::numeric_limits<std::int64_t>::max();

/// What a device gets of a value that comes from another region, in order.
struct Received {
  const BoundaryValue* boundary_value = nullptr;
  Form form;
  std::vector<BufferId> pieces;
  std::string label;
};

/// A region's sharding while it is lowered.
struct LoweredStage {
  StageSharding found;
  PartOfStep part;
  std::optional<ShardedStep> step;
  std::optional<Parts> parts;
  std::vector<std::size_t> slots;                     // by operator: its place in the order
  std::deque<Place> places;                           // by member
  std::deque<RankStep> ranks;                         // by member
  std::deque<RankWriter> writers;                     // by member
  std::vector<std::map<ValueId, Received>> received;  // by member: that no operator has read yet
  GroupId group;                                      // none: of one device
};

/// A device's program so far.
struct LoweredRank {
  explicit LoweredRank(program::DeviceProgram start) : builder(std::move(start)) {}
  ProgramBuilder builder;
  std::int64_t task = -1;
  std::vector<InstructionId> task_ends;                     // last compute instruction of each task
  std::deque<std::pair<std::size_t, InstructionId>> sends;  // by number of the task: not awaited
  std::vector<InstructionId> first_sends;  // of what comes before micro-batches, and behind it
  std::map<std::size_t, std::int64_t> first_bytes;  // of these, by receiver: the largest
  std::vector<InstructionId> kept_sends;            // of what updates write
};

class StageLowering {
 public:
  StageLowering(const plan::Plan& plan, const cluster::Cluster& cluster,
                const LowerOptions& options, const StageRanks& ranks, StagedStep step)
      : plan_(plan), options_(options), step_(std::move(step)), groups_(ranks.groups) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      std::vector<std::size_t> numbers;
      for (const Rank rank : groups_[g].members) numbers.push_back(rank.index());
      group_ids_.emplace(std::move(numbers), GroupId(static_cast<std::int64_t>(g)));
    }
    for (const plan::Member& member : ranks.members) {
      names_.push_back(cluster.device(member.device).name);
      const auto share = plan.state_shares.find(member.device);
      state_shares_.push_back(share == plan.state_shares.end() ? 0 : share->second);
    }
  }

  Result<program::Program> run(const graph::Graph& model) {
    MOTLEY_RETURN_IF_ERROR(shard_stages(model));
    for (std::size_t rank = 0; rank < names_.size(); ++rank) identical_.push_back({{rank}, rank});
    MOTLEY_RETURN_IF_ERROR(lower());
    program::Program program = put_together();
    mark_parts(program);
    return program;
  }

  Result<std::optional<StageKinds>> find_kinds(const graph::Graph& model,
                                               const std::vector<int>& classes) {
    MOTLEY_RETURN_IF_ERROR(shard_stages(model));
    identical_ = find_identical(classes);
    MOTLEY_RETURN_IF_ERROR(lower());
    if (!are_identical()) return std::nullopt;
    StageKinds kinds;
    for (const program::Group& group : groups_) kinds.groups.push_back(all_of_group(group));
    kinds.program = put_together();
    for (IdenticalRanks::StandIn& each : identical_)
      kinds.identical.push_back(std::move(each.ranks));
    return kinds;
  }

 private:
  Result<void> lower() {
    numbers_.resize(names_.size());
    for (std::size_t i = 0; i < identical_.size(); ++i)
      numbers_[identical_[i].ranks.front()] = Rank(static_cast<std::int64_t>(i));
    MOTLEY_RETURN_IF_ERROR(check_holders());
    open_ranks();
    MOTLEY_RETURN_IF_ERROR(find_gradients());
    begin_ranks();
    write_operators();
    write_outputs();
    return {};
  }

  /// Or does another one stand for it?
  bool is_lowered(std::size_t rank) const { return !numbers_[rank].is_none(); }

  // ---- how regions run

  Result<void> shard_stages(const graph::Graph& model) {
    for (const graph::Output& output : model.outputs)
      if (output.kind == graph::OutputKind::kMetric) metric_names_.push_back(output.name);
    MOTLEY_ASSIGN(std::vector<StageSharding> found, find_stage_shardings(model, step_));
    for (std::size_t s = 0; s < found.size(); ++s) {
      LoweredStage& stage = stages_.emplace_back();
      stage.found = std::move(found[s]);
    }
    for (std::size_t p = 0; p < step_.boundary_values.size(); ++p) {
      const BoundaryValue& boundary_value = step_.boundary_values[p];
      LoweredStage& from = stages_[boundary_value.from];
      forms_.push_back(stages_[boundary_value.to].found.received.at(boundary_value.read));
      if (from.found.sharding.devices.size() > 1)
        from.part.given.emplace_back(boundary_value.made, forms_.back());
    }
    const std::set<std::string> shared = shared_parameters();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      LoweredStage& stage = stages_[s];
      StageGraph& about = step_.stages[s];
      for (const ValueId id : values_with_role(about.graph, graph::ValueRole::kParameter))
        if (shared.contains(about.graph.value(id).name)) stage.part.shared.insert(id);
      for (std::size_t member = 0; member < about.ranks.size(); ++member)
        stage.found.sharding.devices[member] = names_[about.ranks[member]];
      for (const ValueId id : values_with_role(about.graph, graph::ValueRole::kInput))
        stage.part.inputs.push_back(input_number(model, about.graph.value(id).name));
      if (about.ranks.size() > 1) stage.part.tasks = find_tasks(about);
      stage.step.emplace(plan_step(about.graph, stage.found.sharding, stage.found.rules, options_,
                                   &about.copies, &stage.part));
      stage.parts.emplace(stage.found.sharding.shares);
      for (std::size_t member = 0; member < about.ranks.size(); ++member)
        stage.places.emplace_back(*stage.parts, member);
      stage.slots = places_in(stage.step->schedule.order, about.graph.ops.size());
      if (about.ranks.size() > 1) stage.group = group_of({about.ranks.begin(), about.ranks.end()});
    }
    order_boundary_values();
    return {};
  }

  /// Operators of each task between the first and the last one of the step, without sums of terms
  /// behind it, which have its last position.
  std::vector<OpStretch> find_tasks(const StageGraph& stage) const {
    std::vector<OpStretch> found;
    for (std::size_t i = 0; i < stage.tasks.size(); ++i) {
      if (stage.tasks[i] == 0 || stage.tasks[i] + 1 == step_.tasks) continue;
      if (i == 0 || stage.tasks[i - 1] != stage.tasks[i]) found.push_back({i, i});
      if (i == 0 || stage.positions[i - 1] != stage.positions[i]) found.back().end = i + 1;
    }
    return found;
  }

  /// Where an operator of a stage stands in the step now.
  std::int64_t position_of(std::size_t s, OpId op) const {
    return step_.stages[s].positions[stages_[s].slots[op.index()]];
  }

  /// What operators give that changed places.
  void order_boundary_values() {
    std::vector<std::pair<BoundaryValue, Form>> boundary_values;
    for (std::size_t p = 0; p < step_.boundary_values.size(); ++p) {
      BoundaryValue boundary_value = step_.boundary_values[p];
      const StageGraph& from = step_.stages[boundary_value.from];
      const OpId producer = from.graph.value(boundary_value.made).producer;
      if (!producer.is_none() && boundary_value.position == from.positions[producer.index()])
        boundary_value.position = position_of(boundary_value.from, producer);
      boundary_values.emplace_back(boundary_value, forms_[p]);
    }
    std::stable_sort(
        boundary_values.begin(), boundary_values.end(),
        [](const auto& a, const auto& b) { return a.first.position < b.first.position; });
    for (std::size_t p = 0; p < boundary_values.size(); ++p)
      std::tie(step_.boundary_values[p], forms_[p]) = std::move(boundary_values[p]);
  }

  /// Names of those that several regions have.
  std::set<std::string> shared_parameters() const {
    std::map<std::string, std::set<const StageGraph*>> holders;
    for (const StageGraph& stage : step_.stages)
      for (const ValueId id : values_with_role(stage.graph, graph::ValueRole::kParameter))
        holders[stage.graph.value(id).name].insert(&stage);
    std::set<std::string> shared;
    for (const auto& [name, stages] : holders)
      if (stages.size() > 1) shared.insert(name);
    return shared;
  }

  static std::int64_t input_number(const graph::Graph& model, const std::string& name) {
    const std::vector<ValueId> inputs = values_with_role(model, graph::ValueRole::kInput);
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (model.value(inputs[i]).name == name) return static_cast<std::int64_t>(i);
    MOTLEY_CHECK(false);
    return -1;
  }

  GroupId group_of(const std::vector<std::size_t>& ranks) {
    const GroupId next(static_cast<std::int64_t>(groups_.size()));
    const auto [known, is_new] = group_ids_.try_emplace(ranks, next);
    if (is_new) {
      program::Group& group = groups_.emplace_back();
      for (const std::size_t rank : ranks)
        group.members.emplace_back(static_cast<std::int64_t>(rank));
    }
    return known->second;
  }

  /// A parameter that a device has in two regions is whole there.
  Result<void> check_holders() const {
    std::map<std::pair<std::string, std::size_t>, std::size_t> holders;  // name, rank -> stage
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (const ValueId id : values_with_role(step_.stages[s].graph, graph::ValueRole::kParameter))
        for (const std::size_t rank : step_.stages[s].ranks) {
          const std::string& name = step_.stages[s].graph.value(id).name;
          const auto [known, is_new] = holders.try_emplace({name, rank}, s);
          const bool is_shared =
              step_.stages[s].ranks.size() > 1 || step_.stages[known->second].ranks.size() > 1;
          if (!is_new && known->second != s && is_shared)
            return usage_error(
                "synth.unsupported",
                fmt::format("{}: device {} has parameter '{}' in two regions, of which one is "
                            "shared with other devices",
                            step_.stages[s].graph.name, names_[rank], name));
        }
    return {};
  }

  // ---- ranks that stand for others

  std::vector<IdenticalRanks::StandIn> find_identical(const std::vector<int>& classes) {
    IdenticalRanks identical(names_.size());
    for (std::size_t rank = 0; rank < names_.size(); ++rank) identical.note(rank, classes[rank]);
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::set<std::int64_t> extents = cut_extents(stages_[s].found.sharding);
      const std::vector<double>& shares = stages_[s].found.sharding.shares;
      for (std::size_t member = 0; member < shares.size(); ++member) {
        const std::size_t rank = step_.stages[s].ranks[member];
        const auto equal = std::find(shares.begin(), shares.end(), shares[member]);
        identical.note(rank, static_cast<std::int64_t>(s));
        identical.note(rank, equal - shares.begin());
        for (const std::int64_t extent : extents)
          identical.note(rank, stages_[s].parts->of(extent)[member]);
        // What counts once is its keeper's, or the first one's.
        identical.note(rank, member == stages_[s].parts->keeper() ? 1 : 0);
        identical.note(rank, member == 0 ? 1 : 0);
      }
    }
    for (std::size_t p = 0; p < step_.boundary_values.size(); ++p)
      for (const Piece& piece : find_pieces(step_.boundary_values[p], forms_[p]))
        identical.join({step_.stages[step_.boundary_values[p].from].ranks[piece.from],
                        step_.stages[step_.boundary_values[p].to].ranks[piece.to]},
                       {static_cast<std::int64_t>(p), piece.end - piece.begin});
    join_holders(identical);
    return identical.find();
  }

  static std::set<std::int64_t> cut_extents(const Sharding& sharding) {
    std::set<std::int64_t> extents;
    const auto add = [&](const std::vector<Form>& forms) {
      for (const Form& form : forms)
        if (form.kind == FormKind::kSharded) extents.insert(form.extent);
    };
    add(sharding.sources);
    for (const graph::Strategy& strategy : sharding.ops) {
      add(strategy.operands);
      add(strategy.results);
    }
    return extents;
  }

  /// Parameters of several regions: whoever has the same rows sums their gradients. What nobody has
  /// cut is summed by all.
  void join_holders(IdenticalRanks& identical) {
    struct Holder {
      std::size_t rank;
      std::int64_t begin, end;
    };
    struct Held {
      std::set<std::size_t> stages;
      bool is_cut = false;  // by any of them
      std::vector<Holder> holders;
    };
    std::map<std::string, Held> found;
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (const graph::Output& output : step_.stages[s].graph.outputs) {
        if (output.kind != graph::OutputKind::kGradient) continue;
        Held& held = found[step_.stages[s].graph.value(output.of).name];
        held.stages.insert(s);
        const Form& form = stages_[s].step->home(output.of);
        const bool is_cut = form.kind == FormKind::kSharded;
        held.is_cut = held.is_cut || is_cut;
        for (std::size_t member = 0; member < step_.stages[s].ranks.size(); ++member) {
          const std::int64_t begin = is_cut ? stages_[s].parts->begin(form.extent, member) : 0;
          const std::int64_t end =
              is_cut ? begin + stages_[s].parts->of(form.extent)[member] : kWhole;
          held.holders.push_back({step_.stages[s].ranks[member], begin, end});
        }
      }
    auto number = static_cast<std::int64_t>(step_.boundary_values.size());
    for (const auto& [name, held] : found) {
      ++number;
      if (held.stages.size() < 2 || !held.is_cut) continue;
      for (std::size_t i = 0; i < held.holders.size(); ++i)
        for (std::size_t other = i + 1; other < held.holders.size(); ++other) {
          const Holder &a = held.holders[i], &b = held.holders[other];
          const std::int64_t both = std::min(a.end, b.end) - std::max(a.begin, b.begin);
          if (both > 0) identical.join({a.rank, b.rank}, {number, both});
        }
    }
  }

  /// Of what several sets have together all that they stand for take part; what one of them has
  /// among itself, the others have among themselves.
  std::vector<std::size_t> all_of_group(const program::Group& group) const {
    std::set<std::size_t> meant, sets, all;
    for (const Rank rank : group.members) {
      all.insert(rank.index());
      if (!is_lowered(rank.index())) continue;
      const IdenticalRanks::StandIn& identical = identical_[numbers_[rank.index()].index()];
      sets.insert(identical.set);
      meant.insert(identical.ranks.begin(), identical.ranks.end());
    }
    if (sets.size() > 1) all.insert(meant.begin(), meant.end());
    return {all.begin(), all.end()};
  }

  /// Would those that a rank stands for have the same parts?
  bool are_identical() const {
    std::vector<std::size_t> first(names_.size());  // by rank, who stands for it
    for (const IdenticalRanks::StandIn& each : identical_)
      for (const std::size_t rank : each.ranks) first[rank] = each.ranks.front();
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<std::size_t>& ranks = step_.stages[s].ranks;
      for (std::size_t member = 0; member < ranks.size(); ++member) {
        const auto by = static_cast<std::size_t>(
            std::find(ranks.begin(), ranks.end(), first[ranks[member]]) - ranks.begin());
        if (!stages_[s].places[by].answers_identical(member, Place::Identical::kTimes))
          return false;
      }
    }
    return true;
  }

  // ---- programs

  /// Does any region of the rank read samples?
  bool loads(std::size_t rank) const {
    for (const StageGraph& stage : step_.stages)
      if (std::find(stage.ranks.begin(), stage.ranks.end(), rank) != stage.ranks.end() &&
          !values_with_role(stage.graph, graph::ValueRole::kInput).empty())
        return true;
    return false;
  }

  void open_ranks() {
    std::vector<std::size_t> replica_of(names_.size());
    for (const StageGraph& stage : step_.stages)
      for (const std::size_t rank : stage.ranks) replica_of[rank] = stage.replica;
    for (std::size_t rank = 0; rank < names_.size(); ++rank) {
      program::DeviceProgram start{names_[rank]};
      const plan::Stretch& samples = step_.passes.replicas[replica_of[rank]];
      if (loads(rank)) {
        start.samples = samples.count;
        start.first_sample = samples.first;
      }
      ranks_.emplace_back(std::move(start));
    }
    reserve_programs();
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (std::size_t member = 0; member < step_.stages[s].ranks.size(); ++member) {
        LoweredStage& stage = stages_[s];
        ProgramBuilder& builder = ranks_[step_.stages[s].ranks[member]].builder;
        stage.ranks.emplace_back(*stage.step, stage.places[member], builder,
                                 stage.group.is_none() ? GroupId(0) : stage.group);
        stage.writers.emplace_back(stage.ranks.back());
        stage.received.emplace_back();
      }
  }

  /// For operators and some exchanges.
  void reserve_programs() {
    std::vector<std::size_t> operators(ranks_.size(), 0);
    for (const StageGraph& stage : step_.stages)
      for (const std::size_t rank : stage.ranks) operators[rank] += stage.graph.ops.size();
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (is_lowered(rank)) ranks_[rank].builder.reserve(operators[rank] * 9 / 8);
  }

  void begin_ranks() {
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (std::size_t member = 0; member < step_.stages[s].ranks.size(); ++member)
        if (is_lowered(step_.stages[s].ranks[member])) stages_[s].writers[member].begin();
  }

  /// The rank comes to a task: sends of earlier ones are waited for, and receives may begin.
  void enter(std::size_t rank, std::int64_t task) {
    LoweredRank& here = ranks_[rank];
    if (here.task == task) return;
    if (here.task >= 0) here.task_ends.push_back(here.builder.last_computed());
    here.task = task;
    while (!here.sends.empty() && here.sends.front().first + kTasksAhead <= here.task_ends.size()) {
      here.builder.wait_for(here.sends.front().second);
      here.sends.pop_front();
    }
  }

  static void await_first(LoweredRank& rank) {
    rank.first_bytes.clear();
    for (const InstructionId send : std::exchange(rank.first_sends, {}))
      rank.builder.wait_for(send);
  }

  void write_operators() {
    struct Next {
      std::int64_t position;
      std::size_t stage, slot;
      auto operator<=>(const Next&) const = default;
    };
    std::vector<Next> order;
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      for (std::size_t slot = 0; slot < step_.stages[s].positions.size(); ++slot)
        order.push_back({step_.stages[s].positions[slot], s, slot});
    std::sort(order.begin(), order.end());
    std::size_t boundary_value = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const Next& next = order[i];
      gradients_->begin(next.position - 1);
      write_operator_of(next.stage, next.slot);
      if (i + 1 < order.size() && order[i + 1].position == next.position &&
          order[i + 1].stage == next.stage)
        continue;
      for (; boundary_value < step_.boundary_values.size() &&
             step_.boundary_values[boundary_value].position == next.position &&
             step_.boundary_values[boundary_value].from == next.stage;
           ++boundary_value)
        pass_on(step_.boundary_values[boundary_value], forms_[boundary_value]);
    }
    gradients_->begin(order.empty() ? 0 : order.back().position);
    MOTLEY_CHECK(boundary_value == step_.boundary_values.size());
  }

  void write_operator_of(std::size_t s, std::size_t slot) {
    const StageGraph& stage = step_.stages[s];
    const std::size_t op = stages_[s].step->schedule.order[slot].index();
    for (std::size_t member = 0; member < stage.ranks.size(); ++member) {
      if (!is_lowered(stage.ranks[member])) continue;
      enter(stage.ranks[member], stage.tasks[op]);
      ProgramBuilder& builder = ranks_[stage.ranks[member]].builder;
      // What a step passes on once may be large. Who reads it has it when gradients come back.
      if (stage.tasks[op] > 0 && stage.graph.ops[op].direction == graph::Direction::kBackward)
        await_first(ranks_[stage.ranks[member]]);
      const std::size_t from = builder.instructions();
      join_operands(s, member, op);
      if (stage.graph.ops[op].name == kSumReplicas)
        sum_replicas(s, member, op);
      else
        stages_[s].writers[member].write(slot);
      builder.set_origins(from, stage.copies[op].of);
    }
  }

  /// Of what all replicas have a term, which each region has whole: over all its devices.
  void sum_replicas(std::size_t s, std::size_t member, std::size_t op) {
    const graph::Op& about = step_.stages[s].graph.ops[op];
    RankStep& rank = stages_[s].ranks[member];
    const ValueId term = std::get<ValueId>(about.arguments[0].value);
    const BufferId once = rank.keep_once(rank.in_form(term, graph::kWholeForm), about.module);
    ProgramBuilder& builder = rank.builder();
    const program::Buffer like = builder.buffer(once);
    const BufferId sum =
        builder.make("aten::clone", {{once}, keyword("memory_format", "contiguous")}, like.dtype,
                     like.shape, about.module);
    std::vector<std::size_t> ranks;
    for (std::size_t other = 0; other < step_.stages.size(); ++other) {
      const StageGraph& stage = step_.stages[other];
      if (std::find(stage.origins.begin(), stage.origins.end(), step_.stages[s].origins[op]) !=
          stage.origins.end())
        ranks.insert(ranks.end(), stage.ranks.begin(), stage.ranks.end());
    }
    std::sort(ranks.begin(), ranks.end());
    builder.use_group(group_of(ranks));
    builder.all_reduce(sum, about.module);
    rank.set_value(about.outputs[0], sum);
  }

  // ---- values from region to region

  /// What the devices of a stage have of a value in a form: [begin, end) of its extent.
  std::vector<std::pair<std::int64_t, std::int64_t>> spans(std::size_t s, const Form& form) {
    const std::size_t members = step_.stages[s].ranks.size();
    std::vector<std::pair<std::int64_t, std::int64_t>> spans;
    for (std::size_t member = 0; member < members; ++member) {
      const std::int64_t begin = members == 1 ? 0 : stages_[s].parts->begin(form.extent, member);
      const std::int64_t count =
          members == 1 ? form.extent : stages_[s].parts->of(form.extent)[member];
      spans.emplace_back(begin, begin + count);
    }
    return spans;
  }

  /// Rows of a value's slab that one device gives another.
  struct Piece {
    std::size_t from = 0, to = 0;  ///< members
    std::int64_t begin = 0, end = 0;
  };

  std::vector<Piece> find_pieces(const BoundaryValue& boundary_value, const Form& form) {
    const std::size_t makers = step_.stages[boundary_value.from].ranks.size();
    const std::size_t readers = step_.stages[boundary_value.to].ranks.size();
    std::vector<Piece> pieces;
    if (form.kind == FormKind::kWhole) {
      for (std::size_t to = 0; to < readers; ++to) pieces.push_back({to % makers, to, 0, 1});
      return pieces;
    }
    const auto made = spans(boundary_value.from, form), read = spans(boundary_value.to, form);
    for (std::size_t to = 0; to < readers; ++to)
      for (std::size_t from = 0; from < makers; ++from) {
        const std::int64_t begin = std::max(made[from].first, read[to].first);
        const std::int64_t end = std::min(made[from].second, read[to].second);
        if (begin < end) pieces.push_back({from, to, begin, end});
      }
    return pieces;
  }

  void pass_on(const BoundaryValue& boundary_value, const Form& form) {
    const StageGraph& maker = step_.stages[boundary_value.from];
    const StageGraph& reader = step_.stages[boundary_value.to];
    LoweredStage& makes = stages_[boundary_value.from];
    LoweredStage& reads = stages_[boundary_value.to];
    const std::string label =
        maker.graph.op(maker.graph.value(boundary_value.made).producer).module;
    const DType dtype = maker.graph.value(boundary_value.made).dtype;
    // By reader: what it gets, in order.
    std::vector<std::vector<BufferId>> got(reader.ranks.size());
    const bool is_cut = form.kind == FormKind::kSharded;
    const auto made = is_cut ? spans(boundary_value.from, form)
                             : std::vector<std::pair<std::int64_t, std::int64_t>>();
    const auto read = is_cut ? spans(boundary_value.to, form) : made;
    // All makers begin what exchanges bring it into the form.
    std::vector<BufferId> there;
    for (std::size_t from = 0; from < maker.ranks.size(); ++from)
      there.push_back(is_lowered(maker.ranks[from])
                          ? makes.ranks[from].in_form(boundary_value.made, maker.ranks.size() == 1
                                                                               ? graph::kWholeForm
                                                                               : form)
                          : BufferId());
    for (const Piece& piece : find_pieces(boundary_value, form)) {
      if (!is_lowered(reader.ranks[piece.to])) continue;
      RankStep& from = makes.ranks[piece.from];
      RankStep& to = reads.ranks[piece.to];
      const std::size_t sender = maker.ranks[piece.from], receiver = reader.ranks[piece.to];
      BufferId sent = there[piece.from];
      Shape shape = from.whole_shape(boundary_value.made);
      if (is_cut) {
        const Slab slab = graph::slab_of(shape, form);
        const bool is_all_of_maker =
            piece.begin == made[piece.from].first && piece.end == made[piece.from].second;
        const bool is_all_of_reader =
            piece.begin == read[piece.to].first && piece.end == read[piece.to].second;
        const Shape rows{slab.before, piece.end - piece.begin, slab.after};
        if (!is_all_of_maker)
          sent = from.builder().make(
              "motley::part",
              {{sent}, {slab.before}, {piece.begin - made[piece.from].first}, {slab.after}}, dtype,
              rows, label);
        shape = is_all_of_reader ? to.shape_on(piece.to, boundary_value.read,
                                               reader.ranks.size() == 1 ? graph::kWholeForm : form)
                                 : rows;
      }
      got[piece.to].push_back(sender == receiver
                                  ? seen_as(to, sent, shape, label)
                                  : transfer(sender, receiver, sent, std::move(shape), label));
    }
    const bool is_output = std::any_of(
        reader.graph.outputs.begin(), reader.graph.outputs.end(),
        [&](const graph::Output& output) { return output.value == boundary_value.read; });
    for (std::size_t to = 0; to < reader.ranks.size(); ++to) {
      if (!is_lowered(reader.ranks[to])) continue;
      reads.received[to].emplace(boundary_value.read,
                                 Received{&boundary_value, form, std::move(got[to]), label});
      if (is_output) join_received(boundary_value.to, to, boundary_value.read);
    }
  }

  /// Received pieces become values in front of their first reader: what computes waits for all that
  /// it reads, and tasks before it need not.
  void join_operands(std::size_t s, std::size_t member, std::size_t op) {
    graph::for_each_value(step_.stages[s].graph.ops[op].arguments,
                          [&](ValueId value) { join_received(s, member, value); });
  }

  void join_received(std::size_t s, std::size_t member, ValueId value) {
    auto& received = stages_[s].received[member];
    const auto found = received.find(value);
    if (found == received.end()) return;
    const Received each = std::move(received.extract(found).mapped());
    RankStep& rank = stages_[s].ranks[member];
    rank.set_value(value,
                   join(rank, member, *each.boundary_value, each.form, each.pieces, each.label));
  }

  /// Sends from rank to rank: what the receiver gets.
  BufferId transfer(std::size_t sender, std::size_t receiver, BufferId sent, Shape shape,
                    const std::string& label) {
    LoweredRank& out = ranks_[sender];
    LoweredRank& in = ranks_[receiver];
    const DType dtype = out.builder.buffer(sent).dtype;
    note_send(out, sent, receiver, label);
    const InstructionId after = in.task_ends.size() < kTasksAhead
                                    ? InstructionId()
                                    : in.task_ends[in.task_ends.size() - kTasksAhead];
    return in.builder.receive(numbers_[sender], dtype, std::move(shape), after, label);
  }

  /// Sends it; what was sent kTasksAhead tasks ago has arrived, or is waited for. But what a step
  /// passes on once may take much longer, and what is small waits behind it: that is there when
  /// gradients come back.
  void note_send(LoweredRank& out, BufferId sent, std::size_t receiver, const std::string& label) {
    const InstructionId send = out.builder.send(sent, numbers_[receiver], label);
    const program::Buffer& buffer = out.builder.buffer(sent);
    const BufferId root = buffer.view_of.is_none() ? sent : buffer.view_of;
    const std::int64_t bytes = buffer.elements() * dtype_size(buffer.dtype);
    const auto first = out.first_bytes.find(receiver);
    if (program::is_persistent(out.builder.buffer(root).kind)) {
      out.kept_sends.push_back(send);
    } else if (out.task == 0) {
      out.first_sends.push_back(send);
      out.first_bytes[receiver] = std::max(out.first_bytes[receiver], bytes);
    } else if (first != out.first_bytes.end() && bytes < first->second) {
      out.first_sends.push_back(send);
    } else {
      out.sends.emplace_back(out.task_ends.size(), send);
    }
  }

  static BufferId seen_as(RankStep& rank, BufferId x, const Shape& shape,
                          const std::string& label) {
    if (rank.builder().buffer(x).shape == shape) return x;
    const BufferId seen = rank.builder().add_temporary(rank.builder().buffer(x).dtype, shape, x);
    rank.builder().compute("aten::view", {{x}, {integers(shape)}}, {seen}, label);
    return seen;
  }

  BufferId join(RankStep& rank, std::size_t member, const BoundaryValue& boundary_value,
                const Form& form, const std::vector<BufferId>& pieces, const std::string& label) {
    const bool is_alone = step_.stages[boundary_value.to].ranks.size() == 1;
    const Shape shape =
        rank.shape_on(member, boundary_value.read, is_alone ? graph::kWholeForm : form);
    ProgramBuilder& builder = rank.builder();
    const DType dtype = rank.graph().value(boundary_value.read).dtype;
    if (pieces.empty())  // no part is here
      return builder.make("aten::zeros", zeros_arguments(shape, dtype), dtype, shape, label);
    if (pieces.size() == 1) return seen_as(rank, pieces.front(), shape, label);
    const Slab slab = graph::slab_of(rank.whole_shape(boundary_value.read), form);
    std::int64_t rows = 0;
    for (const BufferId each : pieces) rows += builder.buffer(each).shape[1];
    const BufferId joined = builder.make("aten::cat", {{buffer_list(pieces)}, {std::int64_t{1}}},
                                         dtype, {slab.before, rows, slab.after}, label);
    return seen_as(rank, joined, shape, label);
  }

  // ---- outputs

  /// What is exchanged of gradients, and when: before anything is written.
  Result<void> find_gradients() {
    gradients_.emplace(
        step_, GradientExchange::Target{
                   .bucket_bytes = options_.bucket_bytes,
                   .rank = [&](std::size_t s, std::size_t member) -> RankStep& {
                     return stages_[s].ranks[member];
                   },
                   .update = [&](std::size_t s, std::size_t member) -> Update& {
                     return stages_[s].writers[member].update();
                   },
                   .group = [&](const std::vector<std::size_t>& ranks) { return group_of(ranks); },
                   .gradient =
                       [&](const GradientExchange::Share& share) {
                         return stages_[share.stage].writers[share.member].output(share.output);
                       },
                   .busy_until = [&](std::size_t rank) { return busy_until(rank); },
                   .state_shares = state_shares_,
                   .updates_at_once = !options_.recipe.needs_factor()});
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const std::vector<graph::Output>& outputs = step_.stages[s].graph.outputs;
      for (std::size_t member = 0; member < step_.stages[s].ranks.size(); ++member)
        for (std::size_t o = 0; o < outputs.size(); ++o) {
          if (outputs[o].kind != graph::OutputKind::kGradient ||
              !is_lowered(step_.stages[s].ranks[member]))
            continue;
          const auto output = static_cast<std::int64_t>(o);
          gradients_->add({.stage = s,
                           .member = member,
                           .rank = step_.stages[s].ranks[member],
                           .output = output,
                           .form = stages_[s].step->home(outputs[o].of),
                           .is_term = stages_[s].step->outputs[o] == graph::kPartialForm,
                           .ready = ready_at(s, o),
                           .bucket = stages_[s].step->schedule.bucket_of(output)});
        }
    }
    return gradients_->arrange();
  }

  /// Behind which position a region has one of its outputs in its form. What its devices exchange
  /// for it is waited for at the end of its passes: before, that would hold up what others wait
  /// for.
  std::int64_t ready_at(std::size_t s, std::size_t output) const {
    const StageGraph& stage = step_.stages[s];
    const ShardedStep& step = *stages_[s].step;
    const ValueId value = stage.graph.outputs[output].value;
    const OpId producer = stage.graph.value(value).producer;
    const bool is_there = stage.ranks.size() == 1 ||
                          (step.schedule.bucket_of(static_cast<std::int64_t>(output)) < 0 &&
                           step.is_home(value, step.outputs[output]));
    if (is_there && !producer.is_none()) return position_of(s, producer);
    std::int64_t last = stage.positions.empty() ? 0 : stage.positions.back();
    for (const BoundaryValue& boundary_value : step_.boundary_values)
      if (boundary_value.to == s && boundary_value.read == value)
        last = std::max(last, boundary_value.position);
    return last;
  }

  /// A region's operators that exchange something share the transfer lane with the sums of
  /// gradients. One of these in front of them would hold up the region's passes, and whoever waits
  /// for these, for as long as it takes between hosts; behind them it waits for none.
  std::int64_t busy_until(std::size_t rank) const {
    std::int64_t last = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const StageGraph& stage = step_.stages[s];
      const std::int64_t op = stages_[s].step->last_exchange;
      if (op >= 0 && std::find(stage.ranks.begin(), stage.ranks.end(), rank) != stage.ranks.end())
        last = std::max(last, stage.positions[static_cast<std::size_t>(op)]);
    }
    return last;
  }

  void write_outputs() {
    std::vector<std::vector<BufferId>> losses(ranks_.size());  // by rank: its terms
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!is_lowered(rank)) continue;
      enter(rank, step_.tasks);
      await_first(ranks_[rank]);
      for (const InstructionId send : ranks_[rank].kept_sends) ranks_[rank].builder.wait_for(send);
    }
    gradients_->finish();
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (std::size_t member = 0; member < step_.stages[s].ranks.size(); ++member) {
        const std::size_t rank = step_.stages[s].ranks[member];
        if (!is_lowered(rank)) continue;
        RankWriter& writer = stages_[s].writers[member];
        const std::vector<graph::Output>& outputs = step_.stages[s].graph.outputs;
        for (std::size_t o = 0; o < outputs.size(); ++o) {
          if (outputs[o].kind == graph::OutputKind::kGradient || !graph::is_wanted(outputs[o]))
            continue;
          const RankWriter::Given given{static_cast<std::int64_t>(o),
                                        writer.output(static_cast<std::int64_t>(o))};
          if (outputs[o].kind == graph::OutputKind::kLoss)
            losses[rank].push_back(writer.rank().keep_once(given.value, "loss"));
          else if (outputs[o].kind == graph::OutputKind::kMetric)
            metrics_[outputs[o].name][rank] = writer.rank().keep_once(given.value, "metric");
          else
            writer.add_output(given);
        }
      }
    finish_updates();
    gradients_->give_back();
    report(std::move(losses), share_metrics());
  }

  std::vector<std::size_t> all_ranks() const {
    std::vector<std::size_t> ranks(ranks_.size());
    std::iota(ranks.begin(), ranks.end(), std::size_t{0});
    return ranks;
  }

  void all_reduce(std::size_t rank, BufferId buffer, const std::string& label) {
    if (ranks_.size() == 1) return;
    ranks_[rank].builder.use_group(group_of(all_ranks()));
    ranks_[rank].builder.all_reduce(buffer, label);
  }

  /// Where the norm of all gradients counts, every device sums the squares of those that count
  /// here.
  void finish_updates() {
    if (options_.recipe.needs_factor())
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (!is_lowered(rank)) {
          squares_.emplace_back();
          continue;
        }
        ProgramBuilder& builder = ranks_[rank].builder;
        const std::string label = "gradient norm";
        const std::vector<BufferId>& counted = gradients_->counted(rank);
        BufferId sum;
        if (counted.empty()) {
          sum = builder.make("aten::zeros", zeros_arguments({1}, DType::kF64), DType::kF64, {1},
                             label);
        } else {
          const BufferId squares =
              builder.make("motley::square_sums", {{buffer_list(counted)}}, DType::kF64,
                           {static_cast<std::int64_t>(counted.size())}, label);
          sum = builder.make("aten::sum.dim_IntList", {{squares}, {integers({0})}, {true}, none()},
                             DType::kF64, {1}, label);
        }
        all_reduce(rank, sum, label);
        squares_.push_back(sum);
      }
    std::map<std::size_t, const Update*> updates;  // by rank
    for (std::size_t s = 0; s < stages_.size(); ++s)
      for (std::size_t member = 0; member < step_.stages[s].ranks.size(); ++member) {
        RankWriter& writer = stages_[s].writers[member];
        const std::size_t rank = step_.stages[s].ranks[member];
        if (!is_lowered(rank)) continue;
        const auto [first, is_first] = updates.try_emplace(rank, &writer.update());
        if (squares_.empty())
          writer.update().finish();
        else if (is_first)
          writer.update().finish(squares_[rank]);
        else
          writer.update().finish(*first->second);  // the scale changes once a step
        writer.assign_buffers();
        if (!writer.update().norm().is_none()) norms_[rank] = writer.update().norm();
      }
  }

  /// By rank the metrics, in the order of the graph: whoever has one gives it to all.
  std::vector<std::vector<BufferId>> share_metrics() {
    std::vector<std::vector<BufferId>> shared(ranks_.size());
    for (const std::string& name : metric_names_) {
      const std::map<std::size_t, BufferId>& owners = metrics_[name];
      MOTLEY_CHECK(!owners.empty());
      const auto& [owner, value] = *owners.begin();
      const DType dtype = ranks_[owner].builder.buffer(value).dtype;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (!is_lowered(rank)) continue;
        ProgramBuilder& builder = ranks_[rank].builder;
        const auto own = owners.find(rank);
        const BufferId term =
            own != owners.end()
                ? own->second
                : builder.make("aten::zeros", zeros_arguments({}, dtype), dtype, {}, "metric");
        if (ranks_.size() == 1) {
          shared[rank].push_back(term);
          continue;
        }
        const BufferId flat =
            builder.make("motley::pack", {{buffer_list({term})}}, dtype, {1}, "metric");
        all_reduce(rank, flat, "metric");
        shared[rank].push_back(builder.unpack(flat, std::vector<Shape>{{}}, "metric")[0]);
      }
    }
    return shared;
  }

  /// Loss and wish to stop are sums over all devices.
  void report(std::vector<std::vector<BufferId>> terms,
              const std::vector<std::vector<BufferId>>& metrics) {
    DType dtype = DType::kF32;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      for (const BufferId loss : terms[rank]) dtype = ranks_[rank].builder.buffer(loss).dtype;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!is_lowered(rank)) continue;
      ProgramBuilder& builder = ranks_[rank].builder;
      std::vector<BufferId>& losses = terms[rank];
      if (losses.empty())
        losses.push_back(
            builder.make("aten::zeros", zeros_arguments({}, dtype), dtype, {}, "loss"));
      BufferId loss = losses.front();
      for (std::size_t i = 1; i < losses.size(); ++i)
        loss = builder.make("aten::add.Tensor", {{loss}, {losses[i]}, {std::int64_t{1}}}, dtype, {},
                            "loss");
      const BufferId stop = builder.make("motley::stop_request", {}, DType::kF32, {1}, "stop");
      BufferId all_stop = stop, all_loss = loss;
      if (ranks_.size() > 1) {
        const bool is_one = dtype == DType::kF32;
        const BufferId flat = builder.make("motley::pack",
                                           {{buffer_list(is_one ? std::vector<BufferId>{loss, stop}
                                                                : std::vector<BufferId>{loss})}},
                                           dtype, {is_one ? 2 : 1}, "loss");
        all_reduce(rank, flat, "loss");
        if (!is_one) all_reduce(rank, stop, "stop");
        const std::vector<BufferId> back = builder.unpack(
            flat, is_one ? std::vector<Shape>{{}, {1}} : std::vector<Shape>{{}}, "loss");
        all_loss = back[0];
        if (is_one) all_stop = back[1];
      }
      builder.compute(
          "motley::report",
          {{all_loss}, {all_stop}, buffer_or_none(norms_[rank]), {buffer_list(metrics[rank])}}, {},
          "report");
    }
  }

  // ---- the program

  program::Program put_together() {
    program::Program program;
    program.global_batch = plan_.global_batch;
    for (const IdenticalRanks::StandIn& identical : identical_)
      program.devices.push_back(ranks_[identical.ranks.front()].builder.finish());
    for (const program::Group& all : groups_) {
      program::Group& group = program.groups.emplace_back();
      for (const Rank rank : all.members)
        if (is_lowered(rank.index())) group.members.push_back(numbers_[rank.index()]);
    }
    return program;
  }

  /// What lives from step to step is not the same on all devices: each has its part, which is all
  /// of it where it is not cut; of several that have the same the first saves it.
  void mark_parts(program::Program& program) const {
    for (program::DeviceProgram& device : program.devices)
      for (program::Buffer& buffer : device.buffers)
        if (program::is_persistent(buffer.kind) && buffer.name != program::kLossScaleState &&
            buffer.elements() > 0 && !buffer.part)
          buffer.part = program::Part{1, 0, buffer.elements(), 1};
    // The parts of one region are all of a tensor: those of the first that has it are saved.
    std::map<std::string, std::size_t> first;
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      for (const graph::Value& value : step_.stages[s].graph.values)
        if (value.producer.is_none() && !value.name.empty()) first.try_emplace(value.name, s);
    std::set<std::pair<std::string, std::int64_t>> saved;       // name, where the part begins
    std::set<std::pair<std::string, std::size_t>> is_saved_by;  // name, rank
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      for (const std::size_t rank : step_.stages[s].ranks)
        for (program::Buffer& buffer : program.devices[rank].buffers) {
          if (!buffer.part) continue;
          const std::string of = buffer.name.substr(0, buffer.name.find('/'));
          const auto owner = first.find(of);
          // Shared states are in all regions that have the parameter.
          const bool is_shared = of != buffer.name && gradients_->shared().contains(of);
          if (owner == first.end() || (owner->second != s && !is_shared)) continue;
          if (saved.insert({buffer.name, buffer.part->begin}).second)
            is_saved_by.insert({buffer.name, rank});
        }
    for (std::size_t rank = 0; rank < program.devices.size(); ++rank)
      for (program::Buffer& buffer : program.devices[rank].buffers)
        if (buffer.part) buffer.part->is_copy = !is_saved_by.contains({buffer.name, rank});
  }

  const plan::Plan& plan_;
  const LowerOptions& options_;
  StagedStep step_;
  std::vector<std::string> names_;                  // by rank
  std::vector<double> state_shares_;                // by rank
  std::vector<IdenticalRanks::StandIn> identical_;  // by device of the program
  std::vector<Rank> numbers_;                       // by rank, its device; none: another one's
  std::deque<LoweredStage> stages_;
  std::vector<Form> forms_;  // by boundary value: in which it travels
  std::deque<LoweredRank> ranks_;
  std::optional<GradientExchange> gradients_;
  std::vector<program::Group> groups_;
  std::map<std::vector<std::size_t>, GroupId> group_ids_;
  std::vector<std::string> metric_names_;
  std::map<std::string, std::map<std::size_t, BufferId>> metrics_;  // by name and rank
  std::vector<BufferId> squares_;                                   // by rank
  std::map<std::size_t, BufferId> norms_;                           // by rank
};

}  // namespace

Result<std::optional<StageKinds>> lower_stage_kinds(const graph::Graph& graph,
                                                    const plan::Plan& plan,
                                                    const cluster::Cluster& cluster,
                                                    const std::vector<int>& classes) {
  // What each owns of a parameter depends on all.
  if (!plan.state_shares.empty()) return std::nullopt;
  const StageRanks ranks{plan::members(plan)};
  const LowerOptions options = options_of(plan);
  MOTLEY_ASSIGN(StagedStep step, cut_into_stages(graph, plan, ranks.members));
  return StageLowering(plan, cluster, options, ranks, std::move(step)).find_kinds(graph, classes);
}

Result<program::Program> lower_stages(const graph::Graph& graph, const plan::Plan& plan,
                                      const cluster::Cluster& cluster, const LowerOptions& options,
                                      const StageRanks& ranks) {
  MOTLEY_ASSIGN(StagedStep step, cut_into_stages(graph, plan, ranks.members));
  return StageLowering(plan, cluster, options, ranks, std::move(step)).run(graph);
}

}  // namespace motley::synth
