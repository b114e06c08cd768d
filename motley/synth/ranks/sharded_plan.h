#pragma once

#include <optional>
#include <set>
#include <string>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/graph/rules/sharding_rule.h"
#include "motley/graph/rules/strategy.h"
#include "motley/plan/plan.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// The strategy of an operator's rule that a plan's split means; empty: none.
std::optional<graph::Strategy> find_strategy(const graph::ShardingRule& rule,
                                             const plan::OperatorSplit& split);
/// Sets how parameters of the graph are kept that a region keeps in parts, by name; those that the
/// graph lacks are left out; the names of the others. Stale error where one cannot be cut so.
Result<std::set<std::string>> read_kept_parameters(const graph::Graph& graph,
                                                   const plan::Region& region, Sharding& sharding);
tl::unexpected<Error> stale_plan(const std::string& what);

/// Stale error where a region does an operator again that the graph does not have.
Result<void> check_recomputed(const graph::Graph& graph, const plan::Plan& plan);

/// A sharding as a plan writes it: of each operator's strategy only what its rule does not say
/// already. The sharding's devices are the cluster's, and its strategies their rules' (checked).
plan::Region make_region(const graph::Graph& graph, const Sharding& sharding,
                         const cluster::Cluster& cluster);

/// The sharding that a verified plan describes: of a shared region the inverse, by the rules at the
/// plan's batch; of replicas of one device each their samples spread (sample_sharding.h); of one
/// device all of everything. Stale errors (plan.stale): another number of operators than the graph
/// has, a parameter that it does not have or that cannot be cut so, and an operator that cannot be
/// split so, by name.
struct RuledSharding {
  Sharding sharding;
  std::vector<graph::ShardingRule> rules;  ///< that its strategies are of (find_rules_of)
};
Result<RuledSharding> find_ruled_sharding(const graph::Graph& graph, const plan::Plan& plan,
                                          const cluster::Cluster& cluster);
Result<Sharding> find_sharding(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster);

}  // namespace motley::synth
