#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/graph/graph.h"
#include "motley/search/costs.h"
#include "motley/search/spmd/space.h"
#include "motley/synth/lower.h"
#include "motley/synth/sharding.h"

namespace motley::search {

/// The question: how to run the graph on some of the devices, each operator cut as is best. What it
/// points to must outlive it.
struct SpmdQuestion {
  const graph::Graph* graph = nullptr;
  const cluster::Cluster* cluster = nullptr;
  const Costs* costs = nullptr;
  synth::LowerOptions lowering;
  std::int64_t global_batch = 0;
  std::vector<DeviceId> devices;  ///< two or more
  /// Splits that are known to be good, as samples of `devices`: searched beside the others.
  std::vector<std::vector<double>> shares;
};

/// A plan that was priced.
struct SpmdPlan {
  std::vector<DeviceId> devices;  ///< by rank
  synth::Sharding sharding;
  Seconds step;                 ///< of the lowered program, simulated
  std::vector<Bytes> peaks;     ///< by rank
  std::vector<double> compute;  ///< seconds by rank
  bool fits = false;            ///< within every device's memory
};

/// Prices a sharding by lowering and simulating it: of devices that are alike and have equal shares
/// one stands for all. `rules`: the space's.
Result<SpmdPlan> price_sharding(const SpmdQuestion& question, const std::vector<DeviceId>& devices,
                                const std::vector<graph::ShardingRule>& rules,
                                synth::Sharding sharding);

/// Whole steps a second of each of the question's devices alone, by the operator models.
Result<std::vector<double>> whole_speeds(const SpmdQuestion& question, const SpmdSpace& space);

}  // namespace motley::search
