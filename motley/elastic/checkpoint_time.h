#pragma once

#include "motley/base/units.h"

namespace motley::elastic {

struct CheckpointSize {
  Bytes weights;  ///< parameters and optimizer state
  Bytes graph;    ///< model description: grows with operators and tensors
  bool operator==(const CheckpointSize&) const = default;
};

/// Time of one checkpoint to remote storage:
///   fixed + weights per_weight_byte + graph per_graph_byte.
/// Weights stream at the storage's rate. Each operator and tensor of the graph costs its own write
/// and entry, far more than its bytes. Starting the upload takes seconds.
struct CheckpointTime {
  Seconds fixed;
  Seconds per_weight_byte;
  Seconds per_graph_byte;
  bool operator==(const CheckpointTime&) const = default;
};

/// Example: 3 s, 20 and 200 ns per byte, 50 MB of weights, 4 MB of graph: 3 + 1 + 0.8 = 4.8 s.
Seconds estimate_checkpoint(const CheckpointTime& model, const CheckpointSize& size);

}  // namespace motley::elastic
