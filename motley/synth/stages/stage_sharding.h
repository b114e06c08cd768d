#pragma once

#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/graph/graph.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/synth/stages/stage_graphs.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// How a region's devices run its graph.
struct StageSharding {
  Sharding sharding;  ///< devices have no names yet
  std::vector<graph::ShardingRule> rules;
  /// Of what other regions give it: the form in which it travels. Whole, or cut along a dimension
  /// as the maker has it cut, or else, for several readers, along the first that is long enough.
  std::map<ValueId, graph::Form> received;
};

/// By stage. Copies of the model's operators are split as the plan's regions say, what was added
/// fits its operands as best (best_strategy). Stale errors where an operator cannot be split so or
/// a parameter cannot be kept so.
Result<std::vector<StageSharding>> find_stage_shardings(const graph::Graph& model,
                                                        const StagedStep& step);

}  // namespace motley::synth
