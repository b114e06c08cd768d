#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "motley/run/torch/operators/element_place.h"
#include "motley/run/torch/operators/philox.h"

namespace motley::run {

/// Dropout whose mask depends on the stream and the global element index only: an element is kept
/// where its uniform number in single precision (distributions.h) is at least p. Returns out = x *
/// mask / (1 - p) and the boolean mask, both contiguous. Equal bits on every device kind, thread
/// count and split. Needs no memory beside the two, on GPUs one kernel (random_kernels.h).
std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream);

}  // namespace motley::run
