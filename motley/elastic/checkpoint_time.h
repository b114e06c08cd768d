#pragma once

#include "motley/base/units.h"

namespace motley::elastic {

/// What a checkpoint writes.
struct CheckpointSize {
  Bytes weights;  ///< parameters and optimizer state
  Bytes graph;    ///< description of the model: grows with its operators and tensors
  bool operator==(const CheckpointSize&) const = default;
};

/// Time of one checkpoint to remote storage:
///   fixed + weights per_weight_byte + graph per_graph_byte.
/// The weights stream at the storage's rate; each operator and tensor of the graph costs a write
/// and an entry of its own, far more than its bytes do; starting the upload costs seconds.
struct CheckpointTime {
  Seconds fixed;
  Seconds per_weight_byte;
  Seconds per_graph_byte;
  bool operator==(const CheckpointTime&) const = default;
};

/// Example: fixed 3 s, 20 ns and 200 ns a byte, 50 MB of weights, 4 MB of graph: 3 + 1 + 0.8 = 4.8
/// s.
Seconds estimate_checkpoint(const CheckpointTime& model, const CheckpointSize& size);

}  // namespace motley::elastic
