#include "motley/synth/stages/stage_graphs.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "motley/graph/reach.h"
#include "motley/synth/ranks/recomputation.h"
#include "motley/synth/ranks/sharded_plan.h"
#include "motley/synth/stages/operator_order.h"
#include "motley/synth/stages/stage_builder.h"
#include "motley/synth/stages/stage_needs.h"

namespace motley::synth {
namespace {

using graph::Graph;

/// Finds the region of each operator, by replica; kNowhere: none.
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
          return stale_plan(fmt::format("replica {} has operator {}, the model has {}", r,
                                        range.end - 1, graph.ops.size()));
        std::fill(of.begin() + range.first, of.begin() + range.end, g);
      }
    for (std::size_t i = 0; i < of.size(); ++i)
      if (of[i] == kNowhere && live.holds(i))
        return stale_plan(
            fmt::format("operator {}, {} in module '{}', is in no region of replica {}", i,
                        graph.ops[i].full_name(), graph.ops[i].module, r));
  }
  return regions;
}

std::vector<StageGraph> open_stages(const plan::Plan& plan, const std::string& name,
                                    const std::vector<plan::Member>& members) {
  std::map<DeviceId, std::size_t> rank_of;
  for (std::size_t rank = 0; rank < members.size(); ++rank) rank_of[members[rank].device] = rank;
  std::vector<StageGraph> stages;
  for (std::size_t r = 0; r < plan.replicas.size(); ++r)
    for (const plan::Region& region : plan.replicas[r].regions) {
      StageGraph& stage = stages.emplace_back();
      stage.replica = r;
      stage.region = &region;
      for (const DeviceId device : region.devices) stage.ranks.push_back(rank_of.at(device));
      stage.graph.name = name;
    }
  return stages;
}

/// Finds rates: the largest value of a micro-batch in the time of the region's lag.
void find_rates(const OperatorOrder& order, StagedStep& step) {
  std::vector<double> largest(step.stages.size(), 0);
  for (const BoundaryValue& each : step.boundary_values) {
    if (!order.is_between(order.tasks[static_cast<std::size_t>(each.position)])) continue;
    const auto bytes =
        static_cast<double>(graph::value_bytes(step.stages[each.from].graph.value(each.made), {}));
    largest[each.to] = std::max(largest[each.to], bytes);
  }
  for (std::size_t s = 0; s < step.stages.size(); ++s)
    if (order.lags[s] > 0)
      step.stages[s].rate =
          largest[s] / order.lags[s] / static_cast<double>(step.stages[s].ranks.size());
}

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
  step.stages = open_stages(plan, graph.name, members);
  const StageNeeds needs = find_stage_needs(graph, accumulated, step.stages, std::move(regions));
  OperatorOrder order = find_operator_order(needs, plan);
  build_stage_graphs(needs, order, accumulated.graph, step);
  find_rates(order, step);
  step.tasks = order.count;
  step.times = std::move(order.times);
  return step;
}

}  // namespace motley::synth
