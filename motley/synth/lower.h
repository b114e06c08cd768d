#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"
#include "motley/synth/ranks/lower_sharded.h"
#include "motley/synth/step/sharding.h"

namespace motley::synth {

/// Lowers a verified plan: one program per member, in rank order (plan::members). However the plan
/// is written, devices share the step as a sharding says (sharded_plan.h), and the result is that
/// of one device by construction: `size` arguments take the local sizes, `number` arguments the
/// global ones, mean losses divide by global counts, batch norm uses global statistics, random
/// numbers are drawn by global element. All devices get the same instruction sequence where each
/// has a part of all; only sizes differ. Stale errors where a shared region is not of this graph,
/// usage errors as of lower_sharded (lower_sharded.h).
Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster);

/// Lowers a verified plan for one rank of each kind (lower_sharded.h): enough to price a step, not
/// a program that can be run, as its group lacks the others. `classes`: by rank; devices of one
/// class have the same times. Not verified.
Result<RankKinds> lower_kinds(const graph::Graph& graph, const plan::Plan& plan,
                              const cluster::Cluster& cluster, const std::vector<int>& classes);

/// Devices that each have `samples` samples of a global batch of samples * ranks and exchange
/// gradients: what is measured, and priced, before there is a plan. Their programs' instructions
/// are those of any plan that gives a device so many samples.
struct EqualReplicas {
  std::int64_t samples = 1;        ///< > 0
  int ranks = 1;                   ///< 1: alone, nothing is exchanged
  std::int64_t micro_batches = 1;  ///< in which each has as many of its samples
};

/// How many of them stand for a step that devices share: two, or one where no two devices can run
/// the graph (check_devices), so that none share it.
int replicas_that_share(const graph::Graph& graph, plan::BatchNormMode batch_norm);

/// The program of all of them; devices are named by their rank.
Result<program::Program> lower_equal(const graph::Graph& graph, const EqualReplicas& replicas,
                                     const LowerOptions& options);
/// The program of the first of them.
Result<program::DeviceProgram> lower_first(const graph::Graph& graph, const EqualReplicas& replicas,
                                           const LowerOptions& options);

}  // namespace motley::synth
