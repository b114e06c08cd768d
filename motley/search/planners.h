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

/// All planners of this library, in the order to show them:
///   auto          the best of what all others that search find (portfolio.h)
///   split         the best split of the batch: exact water-filling under the step model
///                 (split/split_search.h), then, where exchanges in the middle of the step make the
///                 model a bound only, a bounded search with the simulator. Never worse than the
///                 two baselines.
///   spmd          the best sharding of operators found (spmd/spmd_search.h), from its own starts
///                 and from the best split of the batch
///   hap           HAP's algorithm on the same graph, rules and costs (spmd/hap_search.h)
///   stages        the best split of the batch or plan of stages found (stage_planner.h)
///   equal         the same number of samples on every allowed device
///   proportional  samples by the speed that each device has alone at the equal share
///   manual        Problem::manual
///   random        a valid plan drawn with Problem::seed: one in four a split, where every subset
///                 of devices and every positive split within memory can come; the others, if the
///                 inputs have a graph, split operators (region/random_region.h)
/// The last four return the plan they stand for or say that it is not allowed; none moves samples
/// to make it fit. Every outcome carries a lower bound, of all splits or of all shardings and
/// splits, and both baselines. Without a graph, with one device, and with batch norm over local
/// samples, `auto`, `spmd` and `hap` give splits of the batch.
std::span<const NamedPlanner> planners();

/// Usage error with a suggestion for a name that is none of `among`.
Result<std::unique_ptr<plan::Planner>> make_planner(
    std::string_view name, const PlannerInputs& inputs,
    std::span<const NamedPlanner> among = planners());

}  // namespace motley::search
