#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "motley/graph/graph.h"
#include "motley/plan/planner.h"
#include "motley/search/costs.h"

namespace motley::search {

/// Planners of operator-level sharding over a model's graph and costs:
///   spmd  the search of spmd_search.h, from its own starts and from the best split of the batch
///   hap   HAP's algorithm on the same graph, rules and costs (hap_search.h)
///   auto  the better of the best split of the batch and `spmd`
/// One device, and batch norm over local samples, leave only splits of the batch. `auto` takes a
/// sharding only where it saves 2 % or more. Its bound is the split's where a split
/// is chosen (water_filling.h), else that of all shardings; baselines are those of splits.
class SpmdPlanner : public plan::Planner {
 public:
  enum class Kind { kSpmd, kHap, kAuto };
  /// `graph` and `costs` must outlive it.
  SpmdPlanner(Kind kind, const graph::Graph& graph, const Costs& costs)
      : kind_(kind), graph_(&graph), costs_(&costs) {}
  std::string_view name() const override;
  Result<plan::PlanOutcome> plan(const plan::Problem& problem) const override;

 private:
  Kind kind_;
  const graph::Graph* graph_;
  const Costs* costs_;
};

/// By name: those above, `split` (the best split of the batch, make_planner's `auto`), and all
/// others of make_planner (planners.h).
Result<std::unique_ptr<plan::Planner>> make_graph_planner(std::string_view name,
                                                          const graph::Graph& graph,
                                                          const Costs& costs);

}  // namespace motley::search
