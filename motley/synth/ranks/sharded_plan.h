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

/// Returns the strategy of an operator's rule that a plan's split names; empty if there is none.
std::optional<graph::Strategy> find_strategy(const graph::ShardingRule& rule,
                                             const plan::OperatorSplit& split);
/// Sets the forms of the graph's parameters that a region shards. Returns the names that the graph
/// lacks. Stale error if a parameter cannot be cut so.
Result<std::set<std::string>> read_kept_parameters(const graph::Graph& graph,
                                                   const plan::Region& region, Sharding& sharding);
tl::unexpected<Error> stale_plan(const std::string& what);

/// Stale error if a region recomputes an operator that the graph lacks.
Result<void> check_recomputed(const graph::Graph& graph, const plan::Plan& plan);

/// Writes a sharding as a plan's region. A strategy keeps only what its rule does not determine.
/// The sharding's devices must be the cluster's, and its strategies their rules' (checked).
plan::Region make_region(const graph::Graph& graph, const Sharding& sharding,
                         const cluster::Cluster& cluster);

/// The sharding of a verified plan: for a shared region the inverse of make_region, with rules at
/// the plan's batch; for replicas of one device each, their samples spread (sample_sharding.h); for
/// one device, everything. Stale errors (plan.stale): a number of operators other than the graph's,
/// a parameter that is missing or cannot be cut so, an operator, by name, that cannot be split so.
struct RuledSharding {
  Sharding sharding;
  std::vector<graph::ShardingRule> rules;  ///< rules of its strategies (find_rules_of)
};
Result<RuledSharding> find_ruled_sharding(const graph::Graph& graph, const plan::Plan& plan,
                                          const cluster::Cluster& cluster);
Result<Sharding> find_sharding(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster);

}  // namespace motley::synth
