#pragma once

#include "motley/graph/graph.h"

namespace motley::synth {

/// Training batch norm that normalises by the samples it sees, and its backward pass.
bool trains_batch_norm(const graph::Op& op);
bool is_batch_norm_backward(const graph::Op& op);

}  // namespace motley::synth
