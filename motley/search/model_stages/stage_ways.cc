#include "motley/search/model_stages/stage_ways.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "motley/search/spmd/spmd_planner.h"
#include "motley/synth/ranks/sample_sharding.h"
#include "motley/synth/ranks/sharded_plan.h"

namespace motley::search {
namespace {

/// cost of holding all parameters, gradients and states, in whole steps: little, or as compute
constexpr double kMemoryPrices[] = {0.1, 1};

/// Fraction of a device's memory; larger whole copies of all parameters may not be kept.
constexpr double kMuchMemory = 0.1;

double state_bytes(const graph::Graph& graph, const SpmdSpace& space, int states) {
  double bytes = 0;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter))
    bytes += space.value_count[id.index()] *
             static_cast<double>(graph::value_bytes(graph.value(id), {})) * (2 + states);
  return bytes;
}

}  // namespace

Result<std::unique_ptr<StageWays>> StageWays::make(const PlannerInputs& inputs,
                                                   const plan::Problem& problem, std::int64_t batch,
                                                   std::shared_ptr<const Depths> depths) {
  std::unique_ptr<StageWays> made(new StageWays);
  made->question_ = spmd_question(inputs, problem);
  made->question_.global_batch = batch;
  made->question_.depths = std::move(depths);
  MOTLEY_ASSIGN(made->study_, SpmdStudy::make(made->question_));
  return made;
}

std::vector<double> StageWays::find_shares(const std::vector<DeviceId>& devices) const {
  std::vector<double> shares;
  double all = 0;
  for (const DeviceId device : devices) {
    shares.push_back(1 / whole_step(device));
    all += shares.back();
  }
  for (double& share : shares) share = std::max(1.0, std::round(1000 * share / all)) / 1000;
  return shares;
}

std::vector<plan::Region> StageWays::find(const std::vector<DeviceId>& devices,
                                          const std::vector<double>& shares,
                                          std::int64_t micro_batches) {
  const graph::Graph& graph = study_->graph();
  const SpmdChoices& choices = study_->choices(shares);
  SpmdPrices prices = study_->prices(choices.space, devices, shares);
  SpmdObjective objective;
  objective.states = plan::count_states(question_.lowering.recipe);
  objective.once = 1 / static_cast<double>(micro_batches);
  double speed = 0;
  for (const DeviceId device : devices) speed += 1 / whole_step(device);
  const double step = 1 / speed;
  const double bytes = std::max(1.0, state_bytes(graph, choices.space, objective.states));
  std::vector<plan::Region> found;
  const auto add = [&](const synth::Sharding& sharding) {
    plan::Region region = synth::make_region(graph, sharding, *question_.cluster);
    const bool is_split =
        std::any_of(region.operators.begin(), region.operators.end(),
                    [](const plan::OperatorSplit& split) { return split.factor >= 0; });
    if (is_split && std::find(found.begin(), found.end(), region) == found.end())
      found.push_back(std::move(region));
  };
  synth::Sharding sharding;
  for (const double price : kMemoryPrices) {
    objective.seconds_per_byte = price * step / bytes;
    const TableSolution solution = choices.problem.solve(choices.problem.costs(prices, objective));
    sharding = study_->sharding(choices, solution.choice, devices, shares);
    add(sharding);
  }
  synth::spread_samples(graph, sharding, question_.lowering.batch_norm);
  synth::keep_parameters_in_parts(graph, sharding);
  add(sharding);
  // Whole copies need much of the memory: a stage may have no room for its own.
  double whole = 0;
  for (const ValueId id : graph::values_with_role(graph, graph::ValueRole::kParameter)) {
    whole += choices.space.value_count[id.index()] *
             static_cast<double>(graph::value_bytes(graph.value(id), {}));
    if (sharding.sources[id.index()].kind == graph::FormKind::kSharded)
      sharding.gathered_again.insert(id);
  }
  const bool is_much = std::any_of(devices.begin(), devices.end(), [&](DeviceId device) {
    const auto memory = question_.cluster->device(device).room();
    return memory && whole > kMuchMemory * static_cast<double>(memory->value);
  });
  if (is_much) add(sharding);
  return found;
}

}  // namespace motley::search
