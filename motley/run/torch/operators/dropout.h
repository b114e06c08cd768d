#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <utility>

#include "motley/run/torch/operators/philox.h"

namespace motley::run {

/// Where the elements of a local tensor stand in the global one: it is seen as [outer, samples,
/// inner], and its samples are [first, first + samples) of `global`.
struct ElementPlace {
  std::int64_t outer = 1, inner = 1;
  std::int64_t first = 0, global = 0;
};

/// Dropout whose mask depends on the stream and the global element index only: element (o, s, j)
/// has index (o * global + first + s) * inner + j and is kept if its word (philox.h) is at least
/// p * 2^32. Returns out = x * mask / (1 - p) and the boolean mask. Equal bits on every device
/// kind, thread count and split.
std::pair<at::Tensor, at::Tensor> dropout(const at::Tensor& x, double p, const ElementPlace& place,
                                          const RandomStream& stream);

/// The mask alone by integer tensor operators on `device`: what devices without a kernel of ours
/// use. `samples` local samples.
at::Tensor dropout_mask_by_operators(std::int64_t samples, double p, const ElementPlace& place,
                                     const RandomStream& stream, at::Device device);

}  // namespace motley::run
