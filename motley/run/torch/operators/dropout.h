#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "motley/run/torch/operators/element_place.h"
#include "motley/run/torch/operators/philox.h"

namespace motley::run {

/// Dropout whose mask depends only on the stream and the global element index: keeps an element
/// whose uniform number in single precision (distributions.h) is at least p. Returns out = x * mask
/// / (1 - p) and the boolean mask, both contiguous, with identical bits for every device kind,
/// thread count and split. Needs no other memory; one kernel on GPUs (random_kernels.h).
std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream);

}  // namespace motley::run
