#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "motley/plan/planner.h"
#include "motley/search/split/planner_inputs.h"

namespace motley::search {

struct NamedPlanner {
  std::string_view name;
  std::unique_ptr<plan::Planner> (*make)(const PlannerInputs& inputs);
};

/// All planners of this library, in display order:
///  auto          the best result of all searching planners (portfolio.h)
///  split         the best split of the batch: exact water-filling under the step model
///                (split/split_search.h), then a bounded search with the simulator if exchanges in
///                the middle of the step make the model only a bound. Never worse than the two
///                baselines.
///  spmd          the best sharding of operators found (spmd/spmd_search.h), from its own starts
///  and
///                from the best split of the batch
///  hap           HAP's algorithm on the same graph, rules and costs (spmd/hap_search.h)
///  stages        the best split of the batch or plan of stages found (stage_planner.h)
///  equal         the same number of samples on every allowed device
///  proportional  samples by each device's speed alone at the equal share
///  manual        Problem::manual
///  random        a valid plan drawn with Problem::seed: one in four a split, from all subsets of
///                devices and all positive splits within memory; the others, if the inputs have a
///                graph, split operators (region/random_region.h)
/// The last four return their plan or report that it is not allowed; none moves samples to make it
/// fit. Every outcome has a lower bound, over all splits or over all shardings and splits, and both
/// baselines. Without a graph, with one device, or with batch norm over local samples, `auto`,
/// `spmd` and `hap` return splits of the batch.
std::span<const NamedPlanner> planners();

/// Makes a planner. Usage error with a suggestion for a name that is not in `among`.
Result<std::unique_ptr<plan::Planner>> make_planner(
    std::string_view name, const PlannerInputs& inputs,
    std::span<const NamedPlanner> among = planners());

}  // namespace motley::search
