#include "motley/synth/stages/stage_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "motley/base/check.h"
#include "motley/graph/reach.h"
#include "motley/graph/work.h"
#include "motley/plan/pass_order.h"
#include "motley/synth/ranks/recomputation.h"
#include "motley/synth/ranks/sharded_plan.h"

namespace motley::synth {
namespace {

using graph::Graph;
using graph::Op;
using graph::SymbolicArgument;
using graph::SymbolicArguments;
using graph::Value;

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

/// By replica and operator of the model, its region there; kNowhere: in no region.
Result<std::vector<std::vector<std::size_t>>> find_regions(const Graph& graph,
                                                           const plan::Plan& plan) {
  const graph::Reach live = graph::find_live(graph);
  std::vector<std::vector<std::size_t>> regions;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r) {
    const plan::Replica& replica = plan.replicas[r];
    std::vector<std::size_t>& of = regions.emplace_back(
        graph.ops.size(), replica.regions.front().covers.empty() ? 0 : kNowhere);
    for (std::size_t g = 0; g < replica.regions.size(); ++g)
      for (const plan::OpRange& range : replica.regions[g].covers) {
        if (range.end > static_cast<std::int64_t>(graph.ops.size()))
          return stale_error("plan.stale",
                             fmt::format("plan: replica {} has operator {}, the model has {}; plan "
                                         "again",
                                         r, range.end - 1, graph.ops.size()));
        std::fill(of.begin() + range.first, of.begin() + range.end, g);
      }
    for (std::size_t i = 0; i < of.size(); ++i)
      if (of[i] == kNowhere && live.holds(i))
        return stale_error("plan.stale",
                           fmt::format("plan: operator {}, {} in module '{}', is in no region of "
                                       "replica {}; plan again",
                                       i, graph.ops[i].full_name(), graph.ops[i].module, r));
  }
  return regions;
}

/// Puts a stage among some, ascending.
void insert(std::vector<std::size_t>& stages, std::size_t stage) {
  const auto at = std::lower_bound(stages.begin(), stages.end(), stage);
  if (at == stages.end() || *at != stage) stages.insert(at, stage);
}

class StageCutter {
 public:
  /// Takes the operators out of what is accumulated.
  StageCutter(const Graph& model, const plan::Plan& plan, const std::vector<plan::Member>& members,
              Accumulation& accumulated, StagedStep& step)
      : model_(model),
        plan_(plan),
        members_(members),
        step_(step),
        accumulated_(accumulated),
        acc_(accumulated.graph) {}

  void run(std::vector<std::vector<std::size_t>> regions) {
    regions_ = std::move(regions);
    lay_out();
    find_homes();
    find_needs();
    find_order();
    build_graphs();
    find_rates();
    add_outputs();
  }

 private:
  /// An operator of the accumulated graph in a stage.
  struct Instance {
    std::size_t op, stage;
    auto operator<=>(const Instance&) const = default;
  };
  /// Where an operator stands in the order of the step.
  struct Stand {
    std::int64_t position, task;
  };
  /// Key of a task: micro-batch, stage, pass, level.
  using TaskKey = std::tuple<std::int64_t, std::size_t, plan::StageTask::Pass, std::int64_t>;

  void lay_out() {
    std::map<DeviceId, std::size_t> rank_of;
    for (std::size_t rank = 0; rank < members_.size(); ++rank)
      rank_of[members_[rank].device] = rank;
    for (std::size_t r = 0; r < plan_.replicas.size(); ++r) {
      first_stage_.push_back(step_.stages.size());
      for (const plan::Region& region : plan_.replicas[r].regions) {
        StageGraph& stage = step_.stages.emplace_back();
        stage.replica = r;
        stage.region = &region;
        for (const DeviceId device : region.devices) stage.ranks.push_back(rank_of.at(device));
        stage.graph.name = model_.name;
      }
    }
  }

  /// The model's operator that says where a copy is; none: anywhere.
  OpId model_op(std::size_t op) const {
    const Copy& copy = accumulated_.copies[op];
    return copy.of.is_none() ? copy.beside : copy.of;
  }

  /// Its stage in a replica; kNowhere: wherever it is wanted.
  std::size_t home(std::size_t op, std::size_t replica) const {
    const OpId of = model_op(op);
    return of.is_none() ? kNowhere : first_stage_[replica] + regions_[replica][of.index()];
  }

  void find_homes() {
    producers_.assign(acc_.values.size(), kNowhere);
    for (std::size_t i = 0; i < acc_.ops.size(); ++i)
      for (const ValueId output : acc_.ops[i].outputs) producers_[output.index()] = i;
  }

  /// Operands in a stage: of a sum over replicas the term of its own.
  template <typename Visit>
  void for_each_operand(std::size_t op, std::size_t stage, const Visit& visit) const {
    if (acc_.ops[op].name == kSumReplicas) return visit(own_term(op, stage));
    graph::for_each_value(acc_.ops[op].arguments, visit);
  }

  ValueId own_term(std::size_t op, std::size_t stage) const {
    const auto& terms = std::get<SymbolicArguments>(acc_.ops[op].arguments[0].value);
    return std::get<ValueId>(terms[step_.stages[stage].replica].value);
  }

  /// Which operators each stage runs, and which values pass between stages.
  void find_needs() {
    stages_of_.resize(acc_.ops.size());
    for (const Accumulation::Term& term : accumulated_.terms)
      if (const std::size_t op = producers_[term.value.index()]; op != kNowhere) {
        const std::size_t at = home(op, term.replica);
        insert(stages_of_[op], at == kNowhere ? first_stage_[term.replica] : at);
      }
    for (std::size_t op = acc_.ops.size(); op-- > 0;) {
      if (stages_of_[op].empty()) continue;
      // All replicas take part in a sum.
      if (acc_.ops[op].name == kSumReplicas)
        for (std::size_t r = 0; r < first_stage_.size(); ++r) insert(stages_of_[op], home(op, r));
      for (const std::size_t stage : stages_of_[op])
        for_each_operand(op, stage, [&](ValueId value) { need(value, stage); });
    }
    find_readers();
    share_updates();
  }

  /// Of sources, and of all values where buffers have new ones.
  void find_readers() {
    const bool has_updates = std::any_of(
        model_.outputs.begin(), model_.outputs.end(),
        [](const graph::Output& each) { return each.kind == graph::OutputKind::kUpdate; });
    readers_.resize(acc_.values.size());
    for (std::size_t op = 0; op < acc_.ops.size(); ++op)
      graph::for_each_value(acc_.ops[op].arguments, [&](ValueId value) {
        if (has_updates || producers_[value.index()] == kNowhere)
          readers_[value.index()].insert(stages_of_[op].begin(), stages_of_[op].end());
      });
    for (const auto& [again, parameter] : accumulated_.again) {
      readers_[parameter.index()].insert(readers_[again.index()].begin(),
                                         readers_[again.index()].end());
      parameter_of_[again] = parameter;
    }
  }

  /// The new value of a buffer goes to all stages of the replica that have the buffer.
  void share_updates() {
    for (const Accumulation::Term& term : accumulated_.terms) {
      if (model_.outputs[term.output].kind != graph::OutputKind::kUpdate) continue;
      const ValueId source = source_of(model_.outputs[term.output].of);
      const std::size_t producer = producers_[term.value.index()];
      const std::size_t at = producer == kNowhere ? kNowhere : home(producer, term.replica);
      if (at == kNowhere) continue;
      for (const std::size_t stage : readers_[source.index()]) {
        if (stage == at || step_.stages[stage].replica != term.replica) continue;
        passing_[{producer, at}].insert({term.value, stage});
        updated_.insert({term.output, stage, term.value});
      }
    }
  }

  void need(ValueId value, std::size_t stage) {
    const std::size_t producer = producers_[value.index()];
    if (producer == kNowhere) return;
    const std::size_t at = home(producer, step_.stages[stage].replica);
    const std::size_t from = at == kNowhere ? stage : at;
    insert(stages_of_[producer], from);
    if (from != stage) passing_[{producer, from}].insert({value, stage});
  }

  /// Is it before or behind all micro-batches?
  bool is_first(std::size_t op) const {
    return accumulated_.copies[op].micro_batch < 0 || op < accumulated_.early;
  }
  bool is_last(std::size_t op) const {
    return accumulated_.copies[op].micro_batch < 0 && op >= accumulated_.late;
  }

  /// Where an operator is in its micro-batch: `level` counts how often a value came from another
  /// region, or from the forward pass to the backward one.
  struct Spot {
    std::int64_t pass = 0, level = 0;
    bool is_backward = false;
    bool is_free = false;  // backward, of what forward passes made alone, or of parameters
    bool is_late = false;  // backward, and nothing that others wait for depends on it

    plan::StageTask::Pass kind() const {
      if (!is_backward) return plan::StageTask::Pass::kForward;
      return is_late ? plan::StageTask::Pass::kWeights : plan::StageTask::Pass::kBackward;
    }
  };
  /// Of instances in order.
  struct Spots {
    std::vector<std::pair<Instance, Spot>> entries;
    std::vector<std::size_t> first;  ///< by operator, and behind the last: where its entries begin

    /// Its entry; kNowhere: it has none (yet).
    std::size_t find(const Instance& instance) const {
      if (instance.op >= first.size()) return kNowhere;
      const std::size_t end =
          instance.op + 1 < first.size() ? first[instance.op + 1] : entries.size();
      for (std::size_t at = first[instance.op]; at < end; ++at)
        if (entries[at].first.stage == instance.stage) return at;
      return kNowhere;
    }
  };

  void find_order() {
    works_.assign(model_.ops.size(), {-1, 0});
    Spots spots = find_spots();
    put_off(spots);
    find_late(spots);
    std::map<TaskKey, std::size_t> known;
    std::vector<plan::StageTask> tasks;
    std::vector<std::vector<Instance>> members;
    std::vector<std::set<std::size_t>> needs;
    std::vector<std::size_t> task_of;  // by entry
    for (const auto& [instance, spot] : spots.entries) {
      const auto& [op, stage] = instance;
      const auto [entry, is_new] =
          known.try_emplace({spot.pass, stage, spot.kind(), spot.level}, tasks.size());
      const std::size_t task = entry->second;
      if (is_new) {
        tasks.push_back({stage, static_cast<std::size_t>(spot.pass), spot.kind(), 0, {}});
        members.emplace_back();
        needs.emplace_back();
      }
      for_each_operand(op, stage, [&](ValueId value) {
        const std::size_t made = spots.find(maker(value, stage));
        if (made != kNowhere && task_of[made] != task) needs[task].insert(task_of[made]);
      });
      members[task].push_back(instance);
      tasks[task].work += work_of(op) / (static_cast<double>(step_.stages[stage].ranks.size()) *
                                         step_.stages[stage].region->speed);
      task_of.push_back(task);
    }
    for (std::size_t t = 0; t < tasks.size(); ++t)
      tasks[t].needs.assign(needs[t].begin(), needs[t].end());
    places_of_ = task_places(tasks);
    number(plan::order_tasks(tasks, places_of_), members);
  }

  /// Of all instances but those before and behind all micro-batches, which it notes.
  Spots find_spots() {
    Spots spots;
    for (std::size_t op = 0; op < acc_.ops.size(); ++op) {
      spots.first.push_back(spots.entries.size());
      for (const std::size_t stage : stages_of_[op]) {
        if (is_last(op)) {
          last_.push_back({op, stage});
          continue;
        }
        if (is_first(op)) {
          first_.push_back({op, stage});
          continue;
        }
        const bool is_backward = acc_.ops[op].direction == graph::Direction::kBackward;
        const Copy& copy = accumulated_.copies[op];
        Spot spot{copy.micro_batch, 0, is_backward, is_backward || copy.is_gathered_again};
        for_each_operand(op, stage, [&](ValueId value) {
          const Instance from = maker(value, stage);
          const std::size_t at = spots.find(from);
          if (at == kNowhere || spots.entries[at].second.pass != spot.pass) return;
          const Spot& found = spots.entries[at].second;
          const bool is_apart = from.stage != stage || found.is_backward != spot.is_backward;
          spot.level = std::max(spot.level, found.level + (is_apart ? 1 : 0));
          spot.is_free = spot.is_free && (!found.is_backward || found.is_free);
        });
        spots.entries.emplace_back(Instance{op, stage}, spot);
      }
    }
    return spots;
  }

  /// What the backward pass makes of the forward pass alone (the slope of a square), and a pass of
  /// parameters, waits for the first that wants it: until then it would be one more tensor to keep.
  /// Where devices have several regions, so does what a forward pass makes before anything has come
  /// from others (a mask): with it the micro-batch would be under way.
  void put_off(Spots& spots) const {
    constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
    // By entry: least level of those of its direction that read it, in its stage.
    std::vector<std::int64_t> wanted(spots.entries.size(), kNever);
    std::vector<char> takes_turns;
    for (const StageGraph& stage : step_.stages)
      takes_turns.push_back(find_turn(plan_.replicas[stage.replica]) > 0 ? 1 : 0);
    for (std::size_t at = spots.entries.size(); at-- > 0;) {
      auto& [instance, spot] = spots.entries[at];
      const auto& [op, stage] = instance;
      const bool may_wait = spot.is_free || (!spot.is_backward && takes_turns[stage] != 0);
      if (may_wait && wanted[at] != kNever && !passing_.contains({op, stage}))
        spot.level = std::max(spot.level, wanted[at]);
      for_each_operand(op, stage, [&, reader = stage, now = spot](ValueId value) {
        const Instance from = maker(value, reader);
        const std::size_t made = from.stage == reader ? spots.find(from) : kNowhere;
        if (made == kNowhere) return;
        const Spot& before = spots.entries[made].second;
        if (before.is_backward == now.is_backward && (now.is_backward || before.pass == now.pass))
          wanted[made] = std::min(wanted[made], now.level);
      });
    }
  }

  /// Gradients of weights, in regions that do them late and give others gradients, too.
  void find_late(Spots& spots) const {
    std::vector<char> leads(spots.entries.size(),
                            0);  // by entry: backward, to what others wait for
    std::vector<char> gives(step_.stages.size(), 0);
    for (std::size_t at = spots.entries.size(); at-- > 0;) {
      const auto& [op, stage] = spots.entries[at].first;
      if (!spots.entries[at].second.is_backward || !is_late_region(stage)) continue;
      if (passing_.contains({op, stage})) leads[at] = gives[stage] = 1;
      if (leads[at] == 0) continue;
      for_each_operand(op, stage, [&, reader = stage](ValueId value) {
        const Instance from = maker(value, reader);
        const std::size_t made = from.stage == reader ? spots.find(from) : kNowhere;
        if (made != kNowhere) leads[made] = 1;
      });
    }
    for (std::size_t at = 0; at < spots.entries.size(); ++at) {
      auto& [instance, spot] = spots.entries[at];
      spot.is_late = spot.is_backward && gives[instance.stage] != 0 && leads[at] == 0;
    }
  }

  bool is_late_region(std::size_t stage) const { return step_.stages[stage].region->late_weights; }

  /// Where the value comes from that a stage reads.
  Instance maker(ValueId value, std::size_t stage) const {
    const std::size_t producer = producers_[value.index()];
    if (producer == kNowhere) return {kNowhere, stage};
    const std::size_t at = home(producer, step_.stages[stage].replica);
    return {producer, at == kNowhere ? stage : at};
  }

  double work_of(std::size_t op) {
    const Copy& copy = accumulated_.copies[op];
    std::pair<std::int64_t, double> none{-1, 0},
        &known = copy.of.is_none() ? none : works_[copy.of.index()];
    if (known.first == copy.stretch.count) return known.second;
    known = {copy.stretch.count, plan::order_seconds(graph::op_work(
                                     acc_, OpId(static_cast<std::int64_t>(op)), graph::Sizes{}))};
    return known.second;
  }

  std::vector<plan::TaskPlace> task_places(const std::vector<plan::StageTask>& tasks) const {
    std::vector<plan::TaskPlace> places;
    std::vector<double> work(step_.stages.size(), 0);  // of all micro-batches
    for (const plan::StageTask& task : tasks) work[task.region] += task.work;
    for (std::size_t s = 0; s < step_.stages.size(); ++s) {
      const StageGraph& stage = step_.stages[s];
      const plan::Replica& replica = plan_.replicas[stage.replica];
      const auto behind =
          static_cast<std::int64_t>(replica.regions.size() - (s - first_stage_[stage.replica]));
      places.push_back({stage.ranks, stage.region->ahead > 0 ? stage.region->ahead : behind,
                        stage.region->lag * work[s] / static_cast<double>(replica.micro_batches),
                        find_turn(replica), stage.region->turns > 1});
    }
    return places;
  }

  /// Sets of devices, if some device has several regions; else 0.
  static std::size_t find_turn(const plan::Replica& replica) {
    std::set<std::vector<DeviceId>> sets;
    std::set<DeviceId> seen;
    bool is_repeated = false;
    for (const plan::Region& region : replica.regions) {
      sets.insert(region.devices);
      for (const DeviceId device : region.devices)
        is_repeated = !seen.insert(device).second || is_repeated;
    }
    return is_repeated ? sets.size() : 0;
  }

  void number(const std::vector<plan::OrderedTask>& order,
              const std::vector<std::vector<Instance>>& members) {
    std::int64_t task = 0;
    const auto add = [&](const std::vector<Instance>& instances, double begin, double end) {
      const double each = (end - begin) / static_cast<double>(instances.size());
      for (std::size_t i = 0; i < instances.size(); ++i) {
        order_.push_back(instances[i]);
        task_of_.push_back(task);
        step_.times.push_back(begin + each * static_cast<double>(i + 1));
      }
      ++task;
    };
    double end = 0;
    add(first_, 0, 0);
    for (const plan::OrderedTask& each : order) {
      std::vector<Instance> together = members[each.tasks.front()];
      if (each.tasks.size() > 1) {
        const std::vector<Instance>& other = members[each.tasks.back()];
        together.insert(together.end(), other.begin(), other.end());
      }
      add(together, each.begin, each.end);
      end = std::max(end, each.end);
    }
    add(last_, end, end);
    step_.tasks = task;
  }

  /// The largest value that comes in a micro-batch, in the time that the region's lag says.
  void find_rates() {
    std::vector<double> largest(step_.stages.size(), 0);
    for (const BoundaryValue& boundary_value : step_.boundary_values) {
      const std::int64_t task = task_of_[static_cast<std::size_t>(boundary_value.position)];
      if (task == 0 || task + 1 == step_.tasks) continue;
      const auto bytes = static_cast<double>(graph::value_bytes(
          step_.stages[boundary_value.from].graph.value(boundary_value.made), {}));
      largest[boundary_value.to] = std::max(largest[boundary_value.to], bytes);
    }
    for (std::size_t s = 0; s < step_.stages.size(); ++s)
      if (places_of_[s].lag > 0)
        step_.stages[s].rate =
            largest[s] / places_of_[s].lag / static_cast<double>(step_.stages[s].ranks.size());
  }

  void build_graphs() {
    places_.assign(acc_.values.size(), {kNowhere, ValueId()});
    for (const Accumulation::Term& term : accumulated_.terms) {
      ++terms_left_[{term.output, stage_of(term)}];
      if (producers_[term.value.index()] != kNowhere) terms_of_[term.value].push_back(term);
    }
    reserve_graphs();
    for (std::size_t position = 0; position < order_.size(); ++position) {
      const Stand stand{static_cast<std::int64_t>(position), task_of_[position]};
      add_operator(order_[position], stand);
      // Before and behind all micro-batches each is a task of its own.
      const bool is_between = stand.task > 0 && stand.task + 1 < step_.tasks;
      if (is_between && position + 1 < order_.size() && task_of_[position + 1] == stand.task)
        continue;
      end_task(order_[position].stage, stand);
    }
  }

  /// For what their operators are and make; little comes on top.
  void reserve_graphs() {
    std::vector<std::size_t> ops(step_.stages.size(), 0), values(step_.stages.size(), 0);
    for (const Instance& instance : order_) {
      ++ops[instance.stage];
      values[instance.stage] += acc_.ops[instance.op].outputs.size();
    }
    for (std::size_t s = 0; s < step_.stages.size(); ++s) {
      StageGraph& stage = step_.stages[s];
      stage.graph.ops.reserve(ops[s] * 9 / 8);
      stage.graph.values.reserve(values[s] * 9 / 8);
      stage.copies.reserve(ops[s] * 9 / 8);
      stage.origins.reserve(ops[s] * 9 / 8);
      stage.positions.reserve(ops[s] * 9 / 8);
      stage.tasks.reserve(ops[s] * 9 / 8);
    }
  }

  /// Terms are added up, and given to others, behind what others may wait for.
  void end_task(std::size_t stage, Stand stand) {
    for (const Given& given : std::exchange(given_[stage], {}))
      add_term(given.output, stage, given.value, stand);
    for (const Accumulation::Term& term : std::exchange(made_terms_, {})) {
      add_term(term.output, stage, here(term.value, stage), stand);
      const std::optional<std::size_t> owner = owner_of(term);
      if (--terms_left_.at({term.output, stage}) == 0 && owner) give_sum(term, *owner, stand);
    }
  }

  /// A stage that has a term of a gradient and does not read the parameter has nothing to update:
  /// the first stage of its replica that reads it gets the term. None: it is where it should be.
  std::optional<std::size_t> owner_of(const Accumulation::Term& term) {
    const graph::Output& output = model_.outputs[term.output];
    if (output.kind != graph::OutputKind::kGradient) return std::nullopt;
    const std::set<std::size_t>& readers = readers_[source_of(output.of).index()];
    if (readers.contains(stage_of(term))) return std::nullopt;
    const auto first = readers.lower_bound(first_stage_[term.replica]);
    if (first == readers.end() || step_.stages[*first].replica != term.replica) return std::nullopt;
    return *first;
  }

  void give_sum(const Accumulation::Term& term, std::size_t owner, Stand stand) {
    const std::size_t from = stage_of(term);
    const ValueId sum = sums_.extract({term.output, from}).mapped();
    Value received = step_.stages[from].graph.value(sum);
    received.producer = OpId();
    const ValueId read = add_value(step_.stages[owner], std::move(received));
    step_.boundary_values.push_back({from, owner, sum, read, stand.position});
    given_[owner].push_back({term.output, read});
  }

  void add_operator(const Instance& instance, Stand stand) {
    StageGraph& stage = step_.stages[instance.stage];
    // Most are in one stage, which takes them.
    const bool is_sum = acc_.ops[instance.op].name == kSumReplicas;
    const bool is_only = stages_of_[instance.op].size() == 1 && !is_sum;
    Op made = is_only ? std::move(acc_.ops[instance.op]) : acc_.ops[instance.op];
    if (is_sum) made.arguments = {{own_term(instance.op, instance.stage)}};
    map_arguments(made.arguments, instance.stage);
    const OpId id(static_cast<std::int64_t>(stage.graph.ops.size()));
    for (ValueId& output : made.outputs) {
      const ValueId there = output;
      Value& value = acc_.values[there.index()];
      output = add_value(stage, is_only ? std::move(value) : value);
      stage.graph.values[output.index()].producer = id;
      place(there, instance.stage) = output;
      if (const auto terms = terms_of_.find(there); terms != terms_of_.end())
        for (const Accumulation::Term& term : terms->second)
          if (stage_of(term) == instance.stage) made_terms_.push_back(term);
    }
    stage.graph.ops.push_back(std::move(made));
    stage.copies.push_back(accumulated_.copies[instance.op]);
    stage.origins.emplace_back(static_cast<std::int64_t>(instance.op));
    stage.positions.push_back(stand.position);
    stage.tasks.push_back(stand.task);
    const auto passing = passing_.find({instance.op, instance.stage});
    if (passing == passing_.end()) return;
    for (const auto& [value, to] : passing->second) {
      const ValueId given = place(value, instance.stage);
      Value received = stage.graph.value(given);
      received.producer = OpId();
      const ValueId read = add_value(step_.stages[to], std::move(received));
      place(value, to) = read;
      step_.boundary_values.push_back({instance.stage, to, given, read, stand.position});
    }
  }

  static ValueId add_value(StageGraph& stage, Value value) {
    stage.graph.values.push_back(std::move(value));
    return ValueId(static_cast<std::int64_t>(stage.graph.values.size()) - 1);
  }

  void map_arguments(SymbolicArguments& arguments, std::size_t stage) {
    for (SymbolicArgument& argument : arguments) {
      if (auto* id = std::get_if<ValueId>(&argument.value)) *id = here(*id, stage);
      if (auto* list = std::get_if<SymbolicArguments>(&argument.value)) map_arguments(*list, stage);
    }
  }

  /// A value of the accumulated graph in a stage; none: it is not there (yet).
  ValueId& place(ValueId value, std::size_t stage) {
    auto& [first, id] = places_[value.index()];
    if (first == kNowhere) first = stage;
    return first == stage ? id : other_places_[{value, stage}];
  }

  ValueId here(ValueId value, std::size_t s) {
    ValueId& there = place(value, s);
    if (there.is_none()) {
      MOTLEY_CHECK(producers_[value.index()] == kNowhere);
      // Who gathers a parameter again has it.
      if (const auto again = parameter_of_.find(value); again != parameter_of_.end())
        here(again->second, s);
      place(value, s) = add_value(step_.stages[s], acc_.value(value));
    }
    return place(value, s);
  }

  Stand behind_all() const { return {static_cast<std::int64_t>(order_.size()), step_.tasks - 1}; }

  /// An operator behind those that the stage has so far.
  ValueId add_to(std::size_t s, Op op, Value result, OpId beside, Stand stand) {
    StageGraph& stage = step_.stages[s];
    op.direction = graph::Direction::kBackward;
    if (!beside.is_none()) op.module = model_.op(beside).module;
    result.role = graph::ValueRole::kActivation;
    result.name.clear();
    result.tied.clear();
    result.producer = OpId(static_cast<std::int64_t>(stage.graph.ops.size()));
    op.outputs = {add_value(stage, std::move(result))};
    const ValueId made = op.outputs.front();
    stage.graph.ops.push_back(std::move(op));
    Copy copy;
    copy.micro_batch = -1;
    copy.beside = beside;
    stage.copies.push_back(copy);
    stage.origins.emplace_back();
    stage.positions.push_back(stand.position);
    stage.tasks.push_back(stand.task);
    return made;
  }

  std::size_t stage_of(const Accumulation::Term& term) const {
    const std::size_t producer = producers_[term.value.index()];
    const std::size_t at = producer == kNowhere ? kNowhere : home(producer, term.replica);
    return at == kNowhere ? first_stage_[term.replica] : at;
  }

  /// Terms of one output in one stage become one.
  void add_term(std::size_t output, std::size_t at, ValueId value, Stand stand) {
    const auto [sum, is_new] = sums_.try_emplace({output, at}, value);
    if (is_new) return;
    Op op;
    op.name = "aten::add";
    op.overload = "Tensor";
    op.arguments = {{sum->second}, {value}, {std::int64_t{1}}};
    sum->second = add_to(at, std::move(op), step_.stages[at].graph.value(value),
                         model_.value(model_.outputs[output].value).producer, stand);
  }

  void add_outputs() {
    for (const Accumulation::Term& term : accumulated_.terms)
      if (producers_[term.value.index()] == kNowhere)
        add_term(term.output, stage_of(term), here(term.value, stage_of(term)), behind_all());
    for (std::size_t stage = 0; stage < step_.stages.size(); ++stage)
      for (const Given& given : std::exchange(given_[stage], {}))
        add_term(given.output, stage, given.value, behind_all());
    for (const auto& [output, stage, value] : updated_)
      sums_.try_emplace({output, stage}, here(value, stage));
    for (std::size_t o = 0; o < model_.outputs.size(); ++o) {
      const graph::Output& output = model_.outputs[o];
      if (output.kind == graph::OutputKind::kExtra) continue;
      for (std::size_t s = 0; s < step_.stages.size(); ++s) {
        const auto sum = sums_.find({o, s});
        std::optional<ValueId> value;
        if (sum != sums_.end()) value = sum->second;
        add_output(s, output, value);
      }
    }
  }

  /// A stage that has a parameter without a term of its gradient adds zeros.
  void add_output(std::size_t s, const graph::Output& output, std::optional<ValueId> value) {
    StageGraph& stage = step_.stages[s];
    graph::Output made = output;
    if (!output.of.is_none()) {
      const ValueId source = source_of(output.of);
      const bool is_here = !place(source, s).is_none();
      if (!is_here && !value) return;
      made.of = here(source, s);
      if (!value && output.kind == graph::OutputKind::kUpdate) return;
      if (!value) {
        const SymbolicArgument none{NoneArgument{}};
        Op zeros;
        zeros.name = "aten::zeros_like";
        zeros.arguments = {{made.of}, none, none, none, none, none};
        value = add_to(s, std::move(zeros), stage.graph.value(made.of), OpId(), behind_all());
      }
    }
    if (!value) return;
    made.value = *value;
    stage.graph.outputs.push_back(made);
  }

  /// Parameters and buffers keep their order among the accumulated graph's sources.
  ValueId source_of(ValueId model_source) {
    if (sources_.empty()) {
      std::map<std::pair<graph::ValueRole, std::string>, ValueId> named;
      for (std::size_t v = 0; v < acc_.values.size(); ++v)
        if (producers_[v] == kNowhere)
          named.try_emplace({acc_.values[v].role, acc_.values[v].name},
                            ValueId(static_cast<std::int64_t>(v)));
      for (std::size_t v = 0; v < model_.values.size(); ++v) {
        const Value& value = model_.values[v];
        const auto found = named.find({value.role, value.name});
        if (value.producer.is_none() && found != named.end())
          sources_[ValueId(static_cast<std::int64_t>(v))] = found->second;
      }
    }
    return sources_.at(model_source);
  }

  const Graph& model_;
  const plan::Plan& plan_;
  const std::vector<plan::Member>& members_;
  std::vector<std::vector<std::size_t>> regions_;
  StagedStep& step_;
  const Accumulation& accumulated_;
  Graph& acc_;                                       // its graph
  std::vector<std::size_t> first_stage_;             // by replica
  std::vector<std::size_t> producers_;               // by value of the accumulated graph
  std::vector<std::vector<std::size_t>> stages_of_;  // by operator of it, ascending
  std::vector<std::set<std::size_t>> readers_;       // by value of it: stages
  std::map<ValueId, ValueId> parameter_of_;          // of those that are gathered again
  std::map<std::pair<std::size_t, std::size_t>, std::set<std::pair<ValueId, std::size_t>>>
      passing_;  // operator, stage -> value, reader
  /// Output, stage, value: new values of buffers that other stages have, too.
  std::set<std::tuple<std::size_t, std::size_t, ValueId>> updated_;
  std::map<ValueId, std::vector<Accumulation::Term>> terms_of_;  // of the accumulated graph
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> terms_left_;  // output, stage
  std::vector<Accumulation::Term> made_terms_;                             // by the current task
  /// What other stages have given a stage, and is not added yet.
  struct Given {
    std::size_t output;
    ValueId value;
  };
  std::map<std::size_t, std::vector<Given>> given_;              // by stage
  std::map<std::pair<std::size_t, std::size_t>, ValueId> sums_;  // output, stage: of terms so far
  std::vector<Instance> first_, last_, order_;
  std::vector<plan::TaskPlace> places_of_;  // by stage
  /// By value of the accumulated graph, the first stage that has it, and what it is there; further
  /// stages.
  std::vector<std::pair<std::size_t, ValueId>> places_;
  std::map<std::pair<ValueId, std::size_t>, ValueId> other_places_;
  /// By operator of the model the work of its last copy, for how many samples.
  std::vector<std::pair<std::int64_t, double>> works_;
  std::vector<std::int64_t> task_of_;   // by position
  std::map<ValueId, ValueId> sources_;  // of the model -> of the accumulated graph
};

}  // namespace

namespace {

Recomputed find_recomputed(const plan::Plan& plan, const Passes& passes) {
  Recomputed recomputed{{}, passes.replica_of};
  for (const plan::Replica& replica : plan.replicas) {
    std::vector<plan::OpRange>& ranges = recomputed.operators.emplace_back();
    for (const plan::Region& region : replica.regions)
      ranges.insert(ranges.end(), region.recomputes.begin(), region.recomputes.end());
    std::vector<GatheredAgain>& regions = recomputed.gathered.emplace_back();
    for (const plan::Region& region : replica.regions) {
      GatheredAgain& gathered = regions.emplace_back(GatheredAgain{region.covers, {}});
      for (const plan::KeptParameter& kept : region.parameters)
        if (kept.is_gathered_again) gathered.parameters.insert(kept.name);
    }
  }
  return recomputed;
}

}  // namespace

Result<StagedStep> cut_into_stages(const graph::Graph& graph, const plan::Plan& plan,
                                   const std::vector<plan::Member>& members) {
  MOTLEY_RETURN_IF_ERROR(check_recomputed(graph, plan));
  MOTLEY_ASSIGN(auto regions, find_regions(graph, plan));
  StagedStep step;
  step.passes = find_passes(plan);
  MOTLEY_ASSIGN(Accumulation accumulated,
                accumulate_replicas(graph, step.passes, plan.batch_norm_span));
  accumulated = recompute(std::move(accumulated), find_recomputed(plan, step.passes));
  StageCutter(graph, plan, members, accumulated, step).run(std::move(regions));
  return step;
}

}  // namespace motley::synth
