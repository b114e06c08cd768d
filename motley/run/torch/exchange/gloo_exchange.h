#pragma once

#include <ATen/core/Tensor.h>

#include "motley/run/torch/exchange/communicator.h"

namespace c10d {
class Backend;
}

namespace motley::run {

/// Exchanges of parts over a Gloo group, on flat contiguous CPU tensors that are not empty
/// everywhere. They block, and throw what c10d throws. As Communicator's, by method:
///   native   all-to-all with splits
///   padded   all-gather and all-to-all of equal parts; a reduce-scatter is Gloo's, which sums
///            everything on all members
///   grouped  around the ring of members, in pieces that are forwarded as they arrive: in an
///            all-gather each member sends its successor every part but the successor's own; in a
///            reduce-scatter the sum for a member starts at its successor and ends at it, with
///            16-bit floats rounded at each hop; in an all-to-all each pair sends its slice
void gloo_all_gather(c10d::Backend& gloo, ExchangeMethod method, const Counts& counts,
                     const at::Tensor& part, at::Tensor& all);
void gloo_reduce_scatter(c10d::Backend& gloo, ExchangeMethod method, const Counts& counts,
                         const at::Tensor& all, at::Tensor& part);
void gloo_all_to_all(c10d::Backend& gloo, ExchangeMethod method, const Splits& splits,
                     const at::Tensor& in, at::Tensor& out);

}  // namespace motley::run
