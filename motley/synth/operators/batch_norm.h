#pragma once

#include "motley/graph/graph.h"

namespace motley::synth {

/// Is it training batch norm, normalised by the statistics of its samples, or its backward pass?
bool trains_batch_norm(const graph::Op& op);
bool is_batch_norm_backward(const graph::Op& op);

}  // namespace motley::synth
