#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/plan/plan.h"
#include "motley/program/program.h"

namespace motley::synth {

/// One device's place in a data-parallel group.
struct Placement {
  std::string device;             ///< name, for people
  std::int64_t samples = 0;       ///< > 0
  std::int64_t first_sample = 0;  ///< position in the global batch
  std::int64_t global_batch = 0;
  int ranks = 1;  ///< 1: alone, nothing is exchanged
};

struct LowerOptions {
  plan::Optimizer optimizer;
  plan::BatchNormMode batch_norm = plan::BatchNormMode::kGlobal;
  Bytes bucket_bytes{4 << 20};
};

/// Lowers the graph for one device (see docs/algorithms.md, "Lowering"). Each value is in one form:
///   replicated   the same on all devices
///   sharded      rows of this device's samples (its shape holds the batch)
///   partial      to be summed over the devices
/// Every operator has a rule that says which forms it maps to which; where it needs another form, a
/// sum over the group is inserted. So the result is that of one device by construction: `size`
/// arguments take the local batch, `number` arguments the global one, mean losses divide by global
/// counts, batch norm uses global statistics, dropout draws by global element.
/// An operator that mixes samples without a rule is an error naming it (synth.unsupported).
/// All devices of a group get the same instruction sequence; only sizes differ.
Result<program::DeviceProgram> lower_device(const graph::Graph& graph, const Placement& placement,
                                            const LowerOptions& options);

/// Lowers a verified plan of data parallelism for some of its ranks, in this order: not a program
/// that can be run, as its group lacks the others, but enough to price a step where the others are
/// like one of these. Not verified.
Result<program::Program> lower_some_replicas(const graph::Graph& graph, const plan::Plan& plan,
                                             const cluster::Cluster& cluster,
                                             const std::vector<std::size_t>& ranks);

/// Lowers a verified plan: one program per member, in rank order. Stale errors where a shared
/// region is not of this graph (sharded_plan.h).
Result<program::Program> lower(const graph::Graph& graph, const plan::Plan& plan,
                               const cluster::Cluster& cluster);

}  // namespace motley::synth
