#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/search/layers/layer_plan.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// Where a layer profile says what whole layers take.
struct LayerDevices {
  std::vector<DeviceId> devices;  ///< whose kind it has without tensor parallelism
  /// That a pass may have: twice the largest profiled micro-batch of the kind with the least.
  std::int64_t most_samples = 0;
};
/// Usage error (search.layers) if it knows none of them.
Result<LayerDevices> find_layer_devices(const cost::LayerProfile& profile,
                                        const cluster::Cluster& cluster,
                                        const std::vector<DeviceId>& allowed);

/// Times of the graph of a layer profile on those devices, at the profiled micro-batches: those of
/// load_costs for a model that another tool timed (cost/layers/profiled_layers.h). What parts of a
/// layer take it knows at profiled degrees alone, so there are no times of operators by their work.
Result<Costs> load_layer_costs(const LayerModel& model, const cluster::Cluster& cluster,
                               const CostOptions& options);

}  // namespace motley::search
