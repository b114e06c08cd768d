#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

#include "motley/run/torch/operators/element_place.h"
#include "motley/run/torch/operators/philox.h"

namespace motley::run {

/// Dropout whose mask depends on the stream and the global element index only: an element is kept
/// where its uniform number in single precision (distributions.h) is at least p. Returns out = x *
/// mask / (1 - p) and the boolean mask. Equal bits on every device kind, thread count and split.
std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream);

/// The mask alone by tensor operators on `device`, flat: what devices without a kernel of ours use.
/// Beside the mask it needs about 90 MiB, however large that is.
at::Tensor dropout_mask_by_operators(std::int64_t elements, double p, const ElementPlace& place,
                                     const RandomStream& stream, at::Device device);

}  // namespace motley::run
