#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "motley/base/ids.h"
#include "motley/base/result.h"

namespace motley::run {

/// Elements of flat tensors by position in the group; 0 allowed.
using Counts = std::vector<std::int64_t>;

/// Who gives how much to whom, seen from one member.
struct Splits {
  Counts sends, receives;
};

/// Collectives among the ranks of a job. All members call the same operations in the same order.
class Communicator {
 public:
  virtual ~Communicator() = default;
  /// Sum over the group, in place; `tensor` is contiguous. Blocks until done or until the timeout;
  /// after an error the communicator is closed and every later call fails at once. Called from the
  /// executor's transfer thread only.
  virtual Result<void> all_reduce(GroupId group, at::Tensor& tensor) = 0;
  /// The members' parts, member after member; the same `counts` on all. These three take flat
  /// contiguous tensors of the sizes that the counts say, all of one dtype, and end as all_reduce.
  virtual Result<void> all_gather(GroupId group, const Counts& counts, const at::Tensor& part,
                                  at::Tensor& all) = 0;
  /// The own part of the sum over the members, added up in their order (16-bit floats in float32).
  virtual Result<void> reduce_scatter(GroupId group, const Counts& counts, const at::Tensor& all,
                                      at::Tensor& part) = 0;
  /// `in` is the parts for member 0, 1, ...; `out` those from member 0, 1, ...
  virtual Result<void> all_to_all(GroupId group, const Splits& splits, const at::Tensor& in,
                                  at::Tensor& out) = 0;
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
