#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/layers/layer_graph.h"
#include "motley/cost/profile_cost.h"
#include "motley/graph/graph.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/planner_inputs.h"
#include "motley/search/split/step_price.h"
#include "motley/search/split/step_shape.h"
#include "motley/synth/lower.h"

namespace motley::search {

/// Prices plans over measured cost tables. Curves are sums of instruction times along the compute
/// lane, group times come from the collectives' fits, peak memory from the lowered program, and
/// step_time from simulating the whole lowered plan. A step in many micro-batches is extrapolated
/// from shorter ones if they are on a line (continue_line). Curves need only one lowered device
/// program per setting. Caches results, so one object serves one thread.
class StepEvaluator : public SplitEvaluator {
 public:
  /// Prices the devices of `costs`. Graph and cluster must outlive the evaluator; `lowering` must
  /// be that of `costs`. Usage errors: a collective that a group of these devices needs was not
  /// measured (named; see groups_to_measure); unsupported operators.
  static Result<std::unique_ptr<StepEvaluator>> make(const graph::Graph& graph,
                                                     const cluster::Cluster& cluster,
                                                     const synth::LowerOptions& lowering,
                                                     const Costs& costs);

  const StepCurves& curves(DeviceId device, Setting setting) const override;
  /// Infinite for a group whose collectives were not measured.
  GroupExchanges group_times(const std::vector<DeviceId>& group) const override;
  /// For all-reduces among planning kinds, a bound over all layouts (least_all_reduce.h). Their
  /// other exchanges, and all exchanges of planning and other kinds together, count as free.
  std::vector<GroupExchanges> least_times(const std::vector<DeviceId>& pool,
                                          std::size_t most) const override;
  /// A size that cannot be lowered fits nowhere.
  Bytes peak_bytes(DeviceId device, std::int64_t samples, Setting setting) const override;
  Result<Seconds> step_time(const plan::Plan& plan) const override;
  Result<plan::Price> price(const plan::Plan& plan) const override;
  /// Returns the price with its parts; caches those of the last plans.
  Result<PlanPrice> price_parts(const plan::Plan& plan) const;
  /// Returns the inputs of planners, based on this evaluator, which must outlive them. Layers timed
  /// by another tool have no operator costs.
  PlannerInputs inputs() const {
    return {this, graph_, cost::is_layer_graph(*graph_) ? nullptr : &costs_};
  }

 private:
  struct Prices {
    StepCurves alone, shared;
    std::vector<double> slack;  // of each blocking exchange
  };
  struct Joining {
    std::string backend, route;
    std::size_t ranks = 0;
    auto operator<=>(const Joining&) const = default;
  };

  StepEvaluator(const graph::Graph& graph, const cluster::Cluster& cluster,
                const synth::LowerOptions& lowering, const Costs& costs)
      : graph_(&graph),
        cluster_(&cluster),
        lowering_(lowering),
        sharing_(synth::replicas_that_share(graph, lowering.batch_norm)),
        costs_(costs),
        model_(cluster, costs.devices, costs.collectives) {}
  Result<EqualPrograms::Programs> lower(std::int64_t samples, Setting setting) const;
  void price_device(DeviceId device, const StepShape& alone);
  /// A plan's devices by rank: their names, and a class number for equal times.
  struct Group {
    std::vector<std::string> names;
    std::vector<int> classes;
  };
  Group find_group(const plan::Plan& plan) const;
  Result<PlanPrice> price_stages(const plan::Plan& plan) const;
  Result<PlanPrice> price_whole(const plan::Plan& plan) const;
  /// Returns none if the step is short, devices vary, or the prices are not on a line.
  Result<std::optional<PlanPrice>> price_by_line(const plan::Plan& plan) const;
  /// Seconds of a step's exchanges, in lane order; planned ones depend on the group's layout.
  using Durations = std::vector<double>;
  Joining joining_of(const std::vector<DeviceId>& group) const;
  Result<Durations> exchange_times(const std::vector<DeviceId>& group) const;
  Result<Durations> measured_times(const Joining& joining) const;
  Result<Durations> planned_times(std::vector<DeviceId> group) const;
  Durations least_planned(const cost::LeastAllReduce& least, std::size_t ranks) const;
  Durations never() const;
  /// Returns the largest slack of the devices for each blocking exchange.
  std::vector<double> slack_of(const std::vector<DeviceId>& devices) const;
  GroupExchanges sort_times(const Durations& seconds, const std::vector<double>& slack) const;

  const graph::Graph* graph_;
  const cluster::Cluster* cluster_;
  synth::LowerOptions lowering_;
  int sharing_;  // ranks of the programs that represent a shared step
  Costs costs_;
  cost::ProfileCost model_;
  StepShape shared_;
  std::map<DeviceId, std::shared_ptr<const Prices>> prices_;
  /// of the first device of each kind
  std::vector<std::pair<const cost::ProfileCost::DeviceTimes*, std::shared_ptr<const Prices>>>
      distinct_;
  mutable std::map<Joining, Durations> measured_;
  mutable std::map<std::vector<DeviceId>, Durations> planned_;
  mutable std::map<std::pair<const cost::InstructionTimes*, std::int64_t>, Bytes> peaks_;
  mutable std::deque<std::pair<plan::Plan, PlanPrice>> priced_;  // the last ones
};

}  // namespace motley::search
