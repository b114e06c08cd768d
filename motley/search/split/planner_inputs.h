#pragma once

#include "motley/graph/graph.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/split_evaluator.h"

namespace motley::search {

/// Inputs of planners besides the problem; must outlive them.
struct PlannerInputs {
  const SplitEvaluator* evaluator = nullptr;  ///< prices plans; never null
  /// For plans that split operators; null: only splits of the batch.
  const graph::Graph* graph = nullptr;
  /// Costs of the graph's operators, for planners that split them; null: no such splits.
  const Costs* costs = nullptr;
};

}  // namespace motley::search
