#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "motley/plan/planner.h"

namespace motley::search {

/// Names that make_planner knows, in the order to show them:
///   auto          the best split: exact water-filling under the step model (split_search.h), then,
///                 where exchanges in the middle of the step make the model a bound only, a bounded
///                 search with the simulator. Never worse than the two baselines.
///   equal         the same number of samples on every allowed device
///   proportional  samples by the speed that each device has alone at the equal share
///   manual        Problem::manual
///   random        a valid plan drawn with Problem::seed: one in four a split, where every subset
///                 of devices and every positive split within memory can come; the others, if the
///                 problem has a graph, split operators (random_region.h)
/// All but auto return the split they stand for or say that it is not allowed; none moves samples
/// to make it fit. Every outcome carries the lower bound of all splits and both baselines.
std::vector<std::string> planner_names();

/// Usage error with a suggestion for an unknown name, among those of planner_names and `more`.
Result<std::unique_ptr<plan::Planner>> make_planner(std::string_view name,
                                                    const std::vector<std::string>& more = {});

}  // namespace motley::search
