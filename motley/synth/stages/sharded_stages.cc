#include "motley/synth/stages/sharded_stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "motley/graph/graph.h"

namespace motley::synth {
namespace {

using graph::Form;
using graph::FormKind;

std::set<std::string> shared_parameters(const StagedStep& step) {
  std::map<std::string, const StageGraph*> first;
  std::set<std::string> shared;
  for (const StageGraph& stage : step.stages)
    for (const ValueId id : values_with_role(stage.graph, graph::ValueRole::kParameter)) {
      const std::string& name = stage.graph.value(id).name;
      if (first.try_emplace(name, &stage).first->second != &stage) shared.insert(name);
    }
  return shared;
}

/// Operators of each task between the first and the last one of the step, without sums of terms
/// behind it, which have its last position.
std::vector<OpStretch> find_stretches(const StageGraph& stage, std::int64_t tasks) {
  std::vector<OpStretch> found;
  for (std::size_t i = 0; i < stage.tasks.size(); ++i) {
    if (stage.tasks[i] == 0 || stage.tasks[i] + 1 == tasks) continue;
    if (i == 0 || stage.tasks[i - 1] != stage.tasks[i]) found.push_back({i, i});
    if (i == 0 || stage.positions[i - 1] != stage.positions[i]) found.back().end = i + 1;
  }
  return found;
}

/// Returns the model's number of each of a stage's inputs.
std::vector<std::int64_t> find_inputs(const graph::Graph& model, const graph::Graph& stage) {
  const std::vector<ValueId> all = values_with_role(model, graph::ValueRole::kInput);
  std::vector<std::int64_t> found;
  for (const ValueId id : values_with_role(stage, graph::ValueRole::kInput))
    found.push_back(
        std::find_if(all.begin(), all.end(),
                     [&](ValueId each) { return model.value(each).name == stage.value(id).name; }) -
        all.begin());
  return found;
}

/// Finds the forms in which boundary values travel.
void find_forms(ShardedStages& made) {
  for (const BoundaryValue& each : made.step.boundary_values) {
    ShardedStage& from = made.stages[each.from];
    made.forms.push_back(made.stages[each.to].found.received.at(each.read));
    if (from.found.sharding.devices.size() > 1)
      from.part.given.emplace_back(each.made, made.forms.back());
  }
}

/// Moves boundary values with their operators.
void order_boundary_values(ShardedStages& made) {
  std::vector<std::pair<BoundaryValue, Form>> ordered;
  for (std::size_t p = 0; p < made.forms.size(); ++p) {
    BoundaryValue each = made.step.boundary_values[p];
    const StageGraph& from = made.step.stages[each.from];
    const OpId producer = from.graph.value(each.made).producer;
    // Else it is a sum behind a task.
    if (!producer.is_none() && each.position == from.positions[producer.index()])
      each.position = made.position_of(each.from, producer);
    ordered.emplace_back(each, made.forms[p]);
  }
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
    return a.first.position < b.first.position;
  });
  for (std::size_t p = 0; p < ordered.size(); ++p)
    std::tie(made.step.boundary_values[p], made.forms[p]) = ordered[p];
}

/// Checks that a parameter that a device has in two stages is whole there.
Result<void> check_holders(const ShardedStages& made) {
  const auto is_shared = [&](std::size_t s) { return made.step.stages[s].ranks.size() > 1; };
  std::map<std::pair<std::string, std::size_t>, std::size_t> holders;  // name, rank -> stage
  for (std::size_t s = 0; s < made.stages.size(); ++s) {
    const StageGraph& stage = made.step.stages[s];
    for (const ValueId id : values_with_role(stage.graph, graph::ValueRole::kParameter))
      for (const std::size_t rank : stage.ranks) {
        const std::string& name = stage.graph.value(id).name;
        const std::size_t first = holders.try_emplace({name, rank}, s).first->second;
        if (first != s && (is_shared(s) || is_shared(first)))
          return usage_error(
              "synth.unsupported",
              fmt::format("{}: device {} has parameter '{}' in two regions, of which one is "
                          "shared with other devices",
                          stage.graph.name, made.names[rank], name));
      }
  }
  return {};
}

}  // namespace

std::pair<std::int64_t, std::int64_t> ShardedStages::span(std::size_t stage, std::size_t member,
                                                          std::int64_t extent) {
  if (step.stages[stage].ranks.size() == 1) return {0, extent};
  const std::int64_t begin = stages[stage].parts->begin(extent, member);
  return {begin, begin + stages[stage].parts->of(extent)[member]};
}

std::vector<BoundaryPiece> ShardedStages::find_pieces(std::size_t value) {
  const BoundaryValue& about = step.boundary_values[value];
  const std::size_t makers = step.stages[about.from].ranks.size();
  std::vector<BoundaryPiece> pieces;
  for (std::size_t to = 0; to < step.stages[about.to].ranks.size(); ++to) {
    if (forms[value].kind == FormKind::kWhole) {
      pieces.push_back({to % makers, to, 0, 1});
      continue;
    }
    const auto read = span(about.to, to, forms[value].extent);
    for (std::size_t from = 0; from < makers; ++from) {
      const auto made = span(about.from, from, forms[value].extent);
      const std::int64_t begin = std::max(made.first, read.first);
      const std::int64_t end = std::min(made.second, read.second);
      if (begin < end) pieces.push_back({from, to, begin, end});
    }
  }
  return pieces;
}

Result<std::unique_ptr<ShardedStages>> shard_stages(const graph::Graph& model, StagedStep step,
                                                    std::vector<std::string> names,
                                                    const LowerOptions& options) {
  auto made = std::make_unique<ShardedStages>(ShardedStages{std::move(step), std::move(names)});
  MOTLEY_ASSIGN(std::vector<StageSharding> found, find_stage_shardings(model, made->step));
  for (StageSharding& each : found) made->stages.push_back({std::move(each)});
  find_forms(*made);
  const std::set<std::string> shared = shared_parameters(made->step);
  for (std::size_t s = 0; s < made->stages.size(); ++s) {
    ShardedStage& stage = made->stages[s];
    StageGraph& about = made->step.stages[s];
    Sharding& sharding = stage.found.sharding;
    for (const ValueId id : values_with_role(about.graph, graph::ValueRole::kParameter))
      if (shared.contains(about.graph.value(id).name)) stage.part.shared.insert(id);
    made->first_seat.push_back(made->seats.size());
    for (std::size_t member = 0; member < about.ranks.size(); ++member) {
      sharding.devices[member] = made->names[about.ranks[member]];
      made->seats.push_back({s, member, about.ranks[member]});
    }
    stage.part.inputs = find_inputs(model, about.graph);
    if (about.ranks.size() > 1) stage.part.tasks = find_stretches(about, made->step.tasks);
    stage.step.emplace(
        plan_step(about.graph, sharding, stage.found.rules, options, &about.copies, &stage.part));
    stage.parts.emplace(sharding.shares);
    stage.slots = places_in(stage.step->schedule.order, about.graph.ops.size());
  }
  order_boundary_values(*made);
  MOTLEY_RETURN_IF_ERROR(check_holders(*made));
  return made;
}

}  // namespace motley::synth
