#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "motley/base/result.h"
#include "motley/run/torch/exchange/communicator.h"
#include "motley/run/torch/exchange/rendezvous.h"

namespace motley::run {

/// Where a rank's copies of what all ranks hold are furthest from rank 0's.
struct CopyDifference {
  int rank = 0;
  std::string name;  ///< of the tensor
  double difference =
      0;               ///< of its elements, the largest; a number against none counts as infinite
  double allowed = 0;  ///< of elements of that tensor (allowed_difference)
  std::int64_t tensors = 0;  ///< how many of the rank's are not rank 0's

  bool is_allowed() const { return difference <= allowed; }
};

/// What copies may differ by: 1e-5 of the largest element, of 16-bit numbers two of their last bits
/// there, of whole numbers nothing. Copies that are updated as they should be never differ; last
/// bits of kernels that differ from device to device stay far below it between two checkpoints.
double allowed_difference(const at::Tensor& of_rank_0);

/// Compares tensors, which all ranks name alike, with rank 0's, and makes those that differ equal
/// to them. What differed, the same list on all ranks, by rank; empty: nothing. `key` once in a
/// job. Collective; costs a hash of the tensors, and where these differ a broadcast of each tensor.
Result<std::vector<CopyDifference>> compare_copies(Rendezvous& rendezvous,
                                                   Communicator& communicator,
                                                   const std::string& key,
                                                   const std::map<std::string, at::Tensor>& copies);

}  // namespace motley::run
