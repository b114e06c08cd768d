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

/// Lowers a verified plan to one program per member, in rank order (plan::members). Every form of
/// plan becomes a sharding (sharded_plan.h), so the result is that of one device by construction:
/// `size` arguments take local sizes, `number` arguments global ones, mean losses divide by global
/// counts, batch norm uses global statistics, and random numbers are drawn per global element.
/// Devices that have a part of everything get the same instruction sequence with different sizes.
/// Returns a stale error if a shared region does not match the graph, and the usage errors of
/// lower_sharded (lower_sharded.h).
Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster);

/// Lowers a verified plan for one rank of each kind (lower_sharded.h). This is enough to price a
/// step, but cannot run: the group lacks the other ranks. `classes` has one entry per rank; devices
/// of one class have the same times. The result is not verified.
Result<RankKinds> lower_kinds(const graph::Graph& graph, const plan::Plan& plan,
                              const cluster::Cluster& cluster, const std::vector<int>& classes);

/// Devices with `samples` samples each, of a global batch of samples * ranks, that exchange
/// gradients. They are measured and priced before there is a plan. Their instructions are those of
/// any plan that gives a device this many samples.
struct EqualReplicas {
  std::int64_t samples = 1;        ///< > 0
  int ranks = 1;                   ///< 1: a device alone, without exchanges
  std::int64_t micro_batches = 1;  ///< of equal size
};

/// Returns how many replicas represent a step shared by devices: two, or one if no two devices can
/// run the graph (check_devices).
int replicas_that_share(const graph::Graph& graph, plan::BatchNormMode batch_norm);

/// Returns the program of all replicas; devices are named by their rank.
Result<program::Program> lower_equal(const graph::Graph& graph, const EqualReplicas& replicas,
                                     const LowerOptions& options);
Result<program::DeviceProgram> lower_first(const graph::Graph& graph, const EqualReplicas& replicas,
                                           const LowerOptions& options);

}  // namespace motley::synth
