#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/synth/ranks/accumulation.h"

namespace motley::synth {

/// A region of a replica as a graph of its own: what it does in a step, all micro-batches, in the
/// order in which it does it. What other regions give it are activations that no operator makes.
struct StageGraph {
  std::size_t replica = 0;
  const plan::Region* region = nullptr;
  std::vector<std::size_t> ranks;  ///< by member
  graph::Graph graph;
  std::vector<Copy> copies;   ///< by operator
  std::vector<OpId> origins;  ///< by operator: in the graph of all replicas (accumulate_replicas);
                              ///< none: added
  /// By operator: in the order of the whole step, ascending. Of the operators of a task these are
  /// places that they may exchange (ShardedStep::schedule).
  std::vector<std::int64_t> positions;
  std::vector<std::int64_t> tasks;  ///< by operator: which task it belongs to (StagedStep)
  /// Bytes that a device gets from another region in a unit of StagedStep::times, by the region's
  /// `lag`; 0: it says none.
  double rate = 0;
};

/// A value that one region gives another, as soon as it is there.
struct BoundaryValue {
  std::size_t from = 0, to = 0;  ///< stages
  ValueId made, read;            ///< in their graphs
  std::int64_t position = 0;     ///< of the operator that makes it
};

/// A step whose replicas are cut into regions: graphs that the regions run, what they give each
/// other, and one order of all operators, which every device keeps to for what it does, so that no
/// two wait for each other.
///
///   first, what has no samples and what is summed over all samples before they are worked on;
///   then tasks (plan/pass_order.h): of a micro-batch in a region the operators that come between
///   two values of other regions; last, sums of each region's terms.
struct StagedStep {
  Passes passes;
  std::vector<StageGraph> stages;              ///< replica after replica
  std::vector<BoundaryValue> boundary_values;  ///< by position
  std::int64_t tasks = 0;                      ///< how many, with the first and the last
  /// By position: when its operator ends on the clock by which tasks are ordered
  /// (plan/pass_order.h).
  std::vector<double> times;
};

/// A verified plan with stages (plan::has_stages), of whose devices `members` has the ranks. Every
/// output of the model that is a sum becomes an output of each region that has a term of it, and a
/// gradient of each that reads the parameter: terms of others pass to the first of the replica that
/// does. Stale errors where the regions lack an operator that is wanted or have one that the model
/// lacks; those of accumulate_replicas.
Result<StagedStep> cut_into_stages(const graph::Graph& graph, const plan::Plan& plan,
                                   const std::vector<plan::Member>& members);

}  // namespace motley::synth
