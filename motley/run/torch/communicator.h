#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "motley/base/ids.h"
#include "motley/base/result.h"

namespace motley::run {

/// Collectives among the ranks of a job. All members call the same operations in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Sum over the group, in place; `tensor` is contiguous. Blocks until done or until the timeout;
  /// after an error the communicator is closed and every later call fails at once. Called from the
  /// executor's transfer thread only.
  virtual Result<void> all_reduce(GroupId group, at::Tensor& tensor) = 0;
  /// Overwrites `tensor` on all ranks with rank 0's. Called before the first step.
  virtual Result<void> broadcast(at::Tensor& tensor) = 0;
  /// "gloo" or "nccl": key of measured times.
  virtual std::string transport() const { return "none"; }
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Drops the group so that peers that wait for us fail at once. Idempotent, any thread.
  virtual void close() = 0;
};

}  // namespace motley::run
