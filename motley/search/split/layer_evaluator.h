#pragma once

#include <memory>
#include <string>
#include <vector>

#include "motley/cluster/cluster.h"
#include "motley/cost/layers/layer_profile.h"
#include "motley/cost/links/network.h"
#include "motley/search/split/table_evaluator.h"

namespace motley::search {

/// Prices data parallelism of a model that is known by a layer profile only (imported from another
/// tool): each device runs the whole model on its samples at once. A device's time is the sum over
/// layers of forward and backward at its samples, then one exchange of all gradients over the
/// cluster's links (collectives.h), not overlapped, then the update; its memory is the layers'
/// states and what they keep of its samples. What a profile of layers does not say is left out:
/// workspace, the framework's own memory, overlap.
class LayerEvaluator {
 public:
  /// Devices whose kind the profile has at tensor parallelism 1. Usage error if none has.
  static Result<LayerEvaluator> make(const cost::LayerProfile& profile,
                                     const cluster::Cluster& cluster);

  const SplitEvaluator& evaluator() const { return *tables_; }
  const std::vector<DeviceId>& devices() const { return devices_; }
  /// Twice the largest profiled micro-batch of the kind with the least.
  std::int64_t max_samples() const { return max_samples_; }

 private:
  std::vector<DeviceId> devices_;
  std::int64_t max_samples_ = 0;
  std::shared_ptr<const cost::Network> network_;
  std::shared_ptr<const TableEvaluator> tables_;
};

}  // namespace motley::search
