#pragma once

#include "motley/graph/graph.h"
#include "motley/search/price/costs.h"
#include "motley/search/split/split_evaluator.h"

namespace motley::search {

/// What planners know beside the problem; must outlive them.
struct PlannerInputs {
  const SplitEvaluator* evaluator = nullptr;  ///< prices plans; never null
  /// For plans that split operators; null: there are only splits of the batch.
  const graph::Graph* graph = nullptr;
  /// Of the graph's operators, for planners that choose how they are split; null: those do not.
  const Costs* costs = nullptr;
};

}  // namespace motley::search
