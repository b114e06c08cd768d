#pragma once

#include <cstdint>
#include <vector>

#include "motley/base/result.h"
#include "motley/cluster/cluster.h"
#include "motley/search/layers/layer_plan.h"
#include "motley/search/price/costs.h"

namespace motley::search {

/// The devices for which a layer profile has times of whole layers.
struct LayerDevices {
  std::vector<DeviceId> devices;  ///< kind profiled without tensor parallelism
  /// Limit per pass: twice the largest profiled micro-batch of the kind with the least.
  std::int64_t most_samples = 0;
};
/// Finds the profiled devices. Usage error (search.layers) if there is none.
Result<LayerDevices> find_layer_devices(const cost::LayerProfile& profile,
                                        const cluster::Cluster& cluster,
                                        const std::vector<DeviceId>& allowed);

/// Loads times of a layer profile's graph on those devices at the profiled micro-batches, as
/// load_costs does for a measured model (cost/layers/profiled_layers.h). Times of a layer's parts
/// are known at profiled degrees only, so there are no operator times by work.
Result<Costs> load_layer_costs(const LayerModel& model, const cluster::Cluster& cluster,
                               const CostOptions& options);

}  // namespace motley::search
