#pragma once

#include <ATen/core/Tensor.h>

#include "motley/run/torch/exchange/communicator.h"

namespace c10d {
class Backend;
}

namespace motley::run {

/// The exchanges of parts over a Gloo group, on flat contiguous CPU tensors that are not empty
/// everywhere. They block, and throw what c10d throws. As Communicator's, by method:
///   native   all-to-all with splits
///   padded   all-gather and all-to-all of equal parts; a reduce-scatter is Gloo's, which sums
///            everything on all members
///   grouped  around the ring of the members, in pieces that are passed on as they come: an
///            all-gather sends each part to the next member, to all but the one before its owner;
///            of a reduce-scatter the sum for a member begins at the one after it and comes to it
///            last, 16-bit floats being rounded at each; of an all-to-all each pair sends its slice
void gloo_all_gather(c10d::Backend& gloo, ExchangeMethod method, const Counts& counts,
                     const at::Tensor& part, at::Tensor& all);
void gloo_reduce_scatter(c10d::Backend& gloo, ExchangeMethod method, const Counts& counts,
                         const at::Tensor& all, at::Tensor& part);
void gloo_all_to_all(c10d::Backend& gloo, ExchangeMethod method, const Splits& splits,
                     const at::Tensor& in, at::Tensor& out);

}  // namespace motley::run
