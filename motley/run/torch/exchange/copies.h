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

/// The largest difference between a rank's copies and rank 0's.
struct CopyDifference {
  int rank = 0;
  std::string name;          ///< of the tensor
  double difference = 0;     ///< largest of an element; a number against NaN is infinite
  double allowed = 0;        ///< for that tensor (allowed_difference)
  std::int64_t tensors = 0;  ///< number of the rank's tensors that differ

  bool is_allowed() const { return difference <= allowed; }
};

/// Returns how much copies may differ: 1e-5 of the largest element; two of its last bits for 16-bit
/// floats; nothing for integers. Correctly updated copies are identical; last-bit differences
/// between devices' kernels stay far below it between two checkpoints.
double allowed_difference(const at::Tensor& of_rank_0);

/// Compares tensors, named alike on all ranks, with rank 0's, and overwrites those that differ.
/// Returns what differed, by rank and equal on all; empty: nothing. Each `key` once per job.
/// Collective; costs a hash of the tensors, and a broadcast of each if hashes differ.
Result<std::vector<CopyDifference>> compare_copies(Rendezvous& rendezvous,
                                                   Communicator& communicator,
                                                   const std::string& key,
                                                   const std::map<std::string, at::Tensor>& copies);

}  // namespace motley::run
