#pragma once

#include <string>

#include "motley/cluster/cluster.h"
#include "motley/plan/plan.h"

namespace motley::synth {

inline cluster::Cluster lab_of_three() {
  cluster::Cluster cluster;
  cluster.name = "lab";
  cluster.nodes.push_back({"a"});
  for (int i = 0; i < 3; ++i) {
    cluster::Device device;
    device.node = NodeId(0);
    device.name = "a:" + std::to_string(i);
    device.kind = "cpu";
    device.index = i;
    cluster.devices.push_back(device);
  }
  return cluster;
}

/// Splits eight samples 4:3:1, in many buckets: some are exchanged while others are filled.
inline plan::Plan uneven_split(plan::OptimizerKind optimizer) {
  plan::Plan plan;
  plan.model_hash = "model";
  plan.replicas = plan::make_replicas({DeviceId(0), DeviceId(1), DeviceId(2)}, {4, 3, 1});
  plan.global_batch = 8;
  plan.recipe.optimizer.kind = optimizer;
  plan.bucket_bytes = Bytes(4 << 10);
  return plan;
}

}  // namespace motley::synth
